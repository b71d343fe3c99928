#include "src/passes/recompute/recompute_timeline.h"

#include <algorithm>

namespace dc::passes {
namespace {

class Evaluator {
 public:
  Evaluator(const RecomputeProgram& program, const KeptStorages& kept) : p_(program), kept_(kept) {}

  Timeline run() {
    find_places();
    if (t_.too_late != kNever) return std::move(t_);
    order_kernels();
    number_indices();
    add_bytes();
    return std::move(t_);
  }

 private:
  // From the last forward node to the first: who reads a result is known before who makes it.
  void find_places() {
    const size_t storages = p_.storages.size();
    t_.place.assign(static_cast<size_t>(p_.boundary), kNever);
    t_.only_again.assign(static_cast<size_t>(p_.boundary), false);
    t_.readers.assign(storages, kNever);
    t_.until.assign(storages, -1);
    t_.again_until.assign(storages, -1);
    last_forward_.assign(storages, -1);
    t_.moved.assign(static_cast<size_t>(p_.copy_count), kNever);
    for (int32_t i = p_.boundary; i-- > 0;) {
      const int32_t place = place_of(i);
      if (place != kNever) run_again(i, place);
      if (at(t_.only_again, i)) continue;
      for (int32_t s : p_.forward(i).operands)
        at(last_forward_, s) = std::max(at(last_forward_, s), i);
    }
    find_ends();
    std::sort(t_.own.begin(), t_.own.end());
    t_.own.erase(std::unique(t_.own.begin(), t_.own.end()), t_.own.end());
    for (const auto& [gather, place] : t_.own) t_.time += at(p_.gathers, gather).time;
  }

  int32_t place_of(int32_t i) const {
    int32_t needed = kNever;
    for (int32_t s : p_.forward(i).results) {
      if (at(kept_, s)) continue;
      const int32_t first = at(p_.storages, s).first_backward;
      if (first != kNever) needed = std::min(needed, at(p_.slot, first));
      needed = std::min(needed, at(t_.readers, s));
    }
    return needed;
  }

  // True if somebody reads what the first run makes.
  bool read_as_is(int32_t s) const {
    const ForwardStorage& storage = at(p_.storages, s);
    if (!storage.recomputable || at(last_forward_, s) >= 0) return true;
    return at(kept_, s) && (storage.saved() || at(t_.readers, s) != kNever);
  }

  void run_again(int32_t i, int32_t place) {
    const ForwardNode& node = p_.forward(i);
    at(t_.place, i) = place;
    const bool runs_twice = std::any_of(node.results.begin(), node.results.end(),
                                        [&](int32_t s) { return read_as_is(s); });
    at(t_.only_again, i) = !runs_twice;
    if (runs_twice) t_.time += node.time;
    if (place > node.frozen_until) t_.too_late = i;
    for (int32_t s : node.operands) {
      at(t_.readers, s) = std::min(at(t_.readers, s), place);
      int32_t& until = at(kept_, s) ? at(t_.until, s) : at(t_.again_until, s);
      until = std::max(until, 2 * place);
    }
    for (int32_t g : node.gathers) {
      const GatheredParameter& gather = at(p_.gathers, g);
      const GatherRead read = gather_read(gather, place);
      if (read.copy < 0) t_.own.emplace_back(g, place);
      if (read.moves) {
        int32_t& moved = at(t_.moved, gather.first_copy + read.copy);
        moved = std::min(moved, place);
      }
    }
  }

  // Position of the last use of the first run's result; uses by kernels run again do not count.
  int32_t last_of(int32_t s) const {
    const ForwardStorage& storage = at(p_.storages, s);
    const bool lasts = at(kept_, s) && (storage.saved() || !storage.recomputable);
    return lasts ? storage.last : std::max(at(last_forward_, s), storage.producer);
  }

  void find_ends() {
    for (int32_t s = 0; s < static_cast<int32_t>(p_.storages.size()); ++s) {
      const ForwardStorage& storage = at(p_.storages, s);
      at(t_.until, s) = std::max(at(t_.until, s), 2 * last_of(s) + 1);
      if (!at(kept_, s) && storage.saved())
        at(t_.again_until, s) = std::max(at(t_.again_until, s), 2 * storage.last + 1);
    }
  }

  void order_kernels() {
    for (int32_t i = 0; i < p_.boundary; ++i) {
      if (at(t_.place, i) != kNever) t_.again.push_back(i);
    }
    std::stable_sort(t_.again.begin(), t_.again.end(),
                     [&](int32_t a, int32_t b) { return at(t_.place, a) < at(t_.place, b); });
  }

  // A copy of a parameter on the new line of indices.
  struct Span {
    const GatheredParameter* gather;
    int32_t first, last;
  };

  int32_t next_index(int32_t coordinate, int64_t scratch) {
    coordinate_.push_back(coordinate);
    scratch_.push_back(scratch);
    return static_cast<int32_t>(coordinate_.size()) - 1;
  }

  // Gives every node, every kernel run again and every gather before one its index in the new
  // order.
  void number_indices() {
    original_.assign(static_cast<size_t>(p_.count()), -1);
    copied_.assign(static_cast<size_t>(p_.boundary), -1);
    size_t number = 0;
    for (const GatheredParameter& gather : p_.gathers) {
      for (const GatheredCopy& copy : gather.copies) {
        if (t_.moved[number++] != kNever) moved_nodes(copy);
      }
    }
    size_t next = 0;
    for (int32_t t = 0; t < p_.count(); ++t) {
      for (; next < t_.again.size() && at(t_.place, t_.again[next]) == t; ++next)
        number_kernel(t_.again[next], t);
      int32_t& index = at(original_, t);
      if (index != -1) continue;
      const bool runs = t >= p_.boundary || !at(t_.only_again, t);
      index = next_index(2 * t + 1, runs ? at(p_.scratch, t) : 0);
    }
  }

  static constexpr int32_t kMoved = -2;  // until its new place is numbered

  void moved_nodes(const GatheredCopy& copy) {
    for (int32_t t : {copy.first, p_.live.position[copy.start.index()], copy.ready})
      at(original_, t) = kMoved;
  }

  void number_kernel(int32_t i, int32_t place) {
    for (int32_t g : p_.forward(i).gathers) {
      const GatheredParameter& gather = at(p_.gathers, g);
      const GatherRead read = gather_read(gather, place);
      if (read.copy < 0) {
        if (last_own_.size() < p_.gathers.size()) last_own_.resize(p_.gathers.size(), -1);
        int32_t& span = at(last_own_, g);
        if (span < 0 || at(coordinate_, at(own_, span).first) != 2 * place) {
          span = static_cast<int32_t>(own_.size());
          own_.push_back({&gather, next_index(2 * place, 0), 0});
        }
        at(own_, span).last = static_cast<int32_t>(coordinate_.size());
      } else if (read.moves) {
        const GatheredCopy& copy = at(gather.copies, read.copy);
        const int32_t start = p_.live.position[copy.start.index()];
        if (at(original_, start) != kMoved) continue;
        const int32_t index = next_index(2 * place, 0);
        for (int32_t t : {copy.first, start, copy.ready}) at(original_, t) = index;
      }
    }
    at(copied_, i) = next_index(2 * place, at(p_.scratch, i));
  }

  void live(int32_t first, int32_t last, int64_t bytes) {
    at(change_, first) += bytes;
    at(change_, last + 1) -= bytes;
  }

  void add_bytes() {
    change_.assign(coordinate_.size() + 1, 0);
    std::vector<int32_t> last_reader(p_.storages.size(), -1);  // indices
    for (int32_t i : t_.again) {
      for (int32_t s : p_.forward(i).operands)
        at(last_reader, s) = std::max(at(last_reader, s), at(copied_, i));
    }
    for (int32_t s = 0; s < static_cast<int32_t>(p_.storages.size()); ++s)
      add_storage(s, at(last_reader, s));
    for (const OtherRange& range : p_.others)
      live(at(original_, range.first), at(original_, range.last), range.bytes);
    for (const Span& span : own_) {
      live(span.first, span.last, span.gather->bytes);
      live(span.first, span.first, span.gather->narrow_bytes);
    }
    sum_up();
  }

  void add_storage(int32_t s, int32_t reader) {
    const ForwardStorage& storage = at(p_.storages, s);
    const int32_t again = at(copied_, storage.producer);
    const bool kept = at(kept_, s) != 0;
    if (!at(t_.only_again, storage.producer)) {
      const int32_t last = at(original_, last_of(s));
      live(at(original_, storage.producer), kept ? std::max(last, reader) : last, storage.bytes);
    }
    if (again < 0) return;
    int32_t last = again;  // if it is only made along with another result
    if (!kept) last = std::max(last, reader);
    if (!kept && storage.saved()) last = std::max(last, at(original_, storage.last));
    live(again, last, storage.bytes);
  }

  void sum_up() {
    t_.bytes.assign(2 * static_cast<size_t>(p_.count()), 0);
    int64_t now = 0;
    for (size_t i = 0; i < coordinate_.size(); ++i) {
      now += change_[i];
      const int64_t here = now + scratch_[i];
      int64_t& most = at(t_.bytes, coordinate_[i]);
      most = std::max(most, here);
      if (here <= t_.peak) continue;
      t_.peak = here;
      t_.peak_at = coordinate_[i];
    }
    for (int32_t c = 2; c < 2 * p_.count(); c += 2) {  // where nothing runs between two nodes
      if (at(t_.bytes, c) == 0)
        at(t_.bytes, c) = std::min(at(t_.bytes, c - 1), at(t_.bytes, c + 1));
    }
  }

  const RecomputeProgram& p_;
  const KeptStorages& kept_;
  Timeline t_;
  // By storage: the last kernel before the boundary that reads it and is not dropped, -1.
  std::vector<int32_t> last_forward_;
  std::vector<int32_t> coordinate_;         // by index
  std::vector<int64_t> scratch_, change_;   // by index
  std::vector<int32_t> original_, copied_;  // new index of a node; of a kernel run again
  std::vector<Span> own_;
  std::vector<int32_t> last_own_;  // by gather: index into own_
};

}  // namespace

KeptStorages keep_everything(const RecomputeProgram& program) {
  KeptStorages kept;
  for (const ForwardStorage& storage : program.storages)
    kept.push_back(storage.saved() || !storage.recomputable);
  return kept;
}

KeptStorages keep_block_inputs(const RecomputeProgram& program) {
  KeptStorages kept = keep_everything(program);
  const auto block = [&](int32_t s) {
    return program.forward(at(program.storages, s).producer).block;
  };
  for (size_t s = 0; s < kept.size(); ++s) {
    if (program.storages[s].recomputable && block(static_cast<int32_t>(s)) >= 0) kept[s] = false;
  }
  for (const ForwardNode& node : program.nodes) {
    for (int32_t s : node.operands) {
      if (block(s) != node.block) at(kept, s) = true;
    }
  }
  return kept;
}

GatherRead gather_read(const GatheredParameter& gather, int32_t place) {
  GatherRead read;
  for (size_t c = 0; c < gather.copies.size(); ++c) {
    const GatheredCopy& copy = gather.copies[c];
    if (copy.last < place) continue;
    if (copy.ready < place) return {static_cast<int32_t>(c), false};
    if (!read.moves) read = {static_cast<int32_t>(c), true};
  }
  return read;
}

Timeline evaluate(const RecomputeProgram& program, const KeptStorages& kept) {
  return Evaluator(program, kept).run();
}

Timeline settle(const RecomputeProgram& program, KeptStorages& kept) {
  while (true) {
    Timeline timeline = evaluate(program, kept);
    if (timeline.too_late == kNever) return timeline;
    for (int32_t s : program.forward(timeline.too_late).results) at(kept, s) = true;
  }
}

}  // namespace dc::passes
