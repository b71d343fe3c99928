// schedule-fast-free: list scheduling that shortens the live range of gathered parameters, as
// DeepCompile does it (arXiv 2504.09983; DeepSpeed, deepspeed/compile/list_schedule.py).
//
// Path(a) = the gathers among the ancestors of the last use of gather a, a included. While gathers
// remain, of those with the smallest Path: if some reach their release without a further gather,
// the one with (fewest gathers, fewest bytes, least time, first name) is scheduled up to its
// release; else the one with (fewest further bytes, then the same) is scheduled up to its gather. A
// reduction whose ancestors hold no unscheduled gather any more follows at once, so that gradients
// go early. The rest keeps its order.
//
// Which gathers an end stands on is one bit set per end, so a candidate costs what is still to be
// scheduled for it. Nodes change places, not what they read: a node follows the writers of what it
// reads and the readers of what it writes. So all numbers stay.
#include <algorithm>
#include <bit>
#include <tuple>
#include <unordered_map>

#include "src/analysis/dependences.h"
#include "src/cost/transfer.h"
#include "src/ir/effects.h"
#include "src/passes/movement.h"
#include "src/schedule/reduction_tail.h"
#include "src/schedule/time_axis.h"
#include "src/sim/simulate.h"

namespace dc::passes {
namespace {

using ir::NodeId;
using ir::OpKind;
using Bits = std::vector<uint64_t>;

// For each end: the set of unscheduled gathers that it depends on, as bits, and their number.
// Words of the same 64 gathers are contiguous over all ends, because take_out() removes a gather
// from every set.
class Paths {
 public:
  Paths() = default;
  Paths(size_t ends, size_t gathers) : counts_(ends), bits_((gathers + 63) / 64 * ends) {}

  void set(size_t end, const Bits& path) {
    for (size_t w = 0; w < path.size(); ++w) {
      bits_[w * counts_.size() + end] = path[w];
      counts_[end] += std::popcount(path[w]);
    }
  }
  int32_t count(size_t end) const { return counts_[end]; }
  void take_out(size_t gather) {
    uint64_t* row = bits_.data() + gather / 64 * counts_.size();
    const uint64_t mask = uint64_t{1} << (gather % 64);
    for (size_t end = 0; end < counts_.size(); ++end) {
      counts_[end] -= (row[end] & mask) != 0;
      row[end] &= ~mask;
    }
  }

 private:
  std::vector<int32_t> counts_;
  Bits bits_;
};

class Scheduler {
 public:
  Scheduler(const ir::Step& step, ir::Graph& graph, const cost::CostModel& cost)
      : step_(step),
        graph_(graph),
        cost_(cost),
        axis_(step, graph),
        needs_(analysis::dependences(graph, axis_.storages, axis_.live)) {}

  // Returns how many nodes changed places.
  int run() {
    find_gathers();
    find_reductions();
    find_paths();
    for (int32_t i = 0; i < count(); ++i) {
      const OpKind kind = axis_.node(i).kind;
      if (kind == OpKind::Input || kind == OpKind::State) place(i);
    }
    while (true) {
      const std::vector<size_t> candidates = smallest_paths();
      if (candidates.empty()) break;
      schedule_best(candidates);
      follow_with_reductions();
    }
    for (int32_t i = 0; i < count(); ++i) {
      if (!placed_[static_cast<size_t>(i)]) place(i);
    }
    return apply();
  }

 private:
  struct Gathered {
    int32_t start = -1, last_use = -1, release = -1;  // positions
    int64_t bytes = 0;
    bool scheduled = false;
  };
  struct Reduction {
    int32_t end = -1;  // the last of its tail
    bool scheduled = false;
  };

  int32_t count() const { return static_cast<int32_t>(axis_.live.order.size()); }

  void find_gathers() {
    gather_at_.assign(static_cast<size_t>(count()), -1);
    for (int32_t i = 0; i < count(); ++i) {
      const ir::Node& node = axis_.node(i);
      if (node.kind != OpKind::AllGatherStart) continue;
      gather_at_[static_cast<size_t>(i)] = static_cast<int32_t>(gathers_.size());
      Gathered gathered;
      gathered.start = i;
      gathered.bytes = cost::transfer_of(graph_, node)->bytes().v;
      find_uses(node.results[0], gathered);
      if (gathered.release < 0) gathered.release = gathered.last_use;
      gathers_.push_back(gathered);
    }
    placed_.assign(static_cast<size_t>(count()), false);
  }

  // A node's set is dropped once every node behind it has it.
  void find_paths() {
    const auto size = static_cast<size_t>(count());
    std::vector<std::vector<size_t>> gathers_end(size), reductions_end(size);  // at a position
    for (size_t g = 0; g < gathers_.size(); ++g)
      gathers_end[static_cast<size_t>(gathers_[g].last_use)].push_back(g);
    for (size_t r = 0; r < reductions_.size(); ++r)
      reductions_end[static_cast<size_t>(reductions_[r].end)].push_back(r);
    gather_paths_ = Paths(gathers_.size(), gathers_.size());
    reduction_paths_ = Paths(reductions_.size(), gathers_.size());
    std::vector<int32_t> behind(size);
    for (const std::vector<int32_t>& needs : needs_) {
      for (int32_t need : needs) ++behind[static_cast<size_t>(need)];
    }
    std::vector<Bits> stands_on(size);  // empty: on none
    for (size_t i = 0; i < size; ++i) {
      Bits bits = stands_on_all(needs_[i], stands_on);
      if (gather_at_[i] >= 0) {
        const auto gather = static_cast<size_t>(gather_at_[i]);
        bits.resize((gathers_.size() + 63) / 64);
        bits[gather / 64] |= uint64_t{1} << (gather % 64);
      }
      for (size_t g : gathers_end[i]) gather_paths_.set(g, bits);
      for (size_t r : reductions_end[i]) reduction_paths_.set(r, bits);
      for (int32_t need : needs_[i]) {
        if (--behind[static_cast<size_t>(need)] == 0) stands_on[static_cast<size_t>(need)] = {};
      }
      if (behind[i] > 0) stands_on[i] = std::move(bits);
    }
  }

  static Bits stands_on_all(const std::vector<int32_t>& needs, const std::vector<Bits>& stands_on) {
    Bits bits;
    for (int32_t need : needs) {
      const Bits& below = stands_on[static_cast<size_t>(need)];
      if (bits.empty()) {
        bits = below;
        continue;
      }
      for (size_t w = 0; w < below.size(); ++w) bits[w] |= below[w];
    }
    return bits;
  }

  // Through views; a view without readers is its own last use.
  void find_uses(ir::ValueId value, Gathered& gathered) const {
    for (const ir::Use& use : graph_.value(value).uses) {
      const ir::Node& reader = graph_.node(use.node);
      const int32_t position = axis_.position(use.node);
      if (reader.kind == OpKind::Release) {
        gathered.release = std::max(gathered.release, position);
        continue;
      }
      gathered.last_use = std::max(gathered.last_use, position);
      if (!ir::is_view(reader) || use.operand != 0) continue;
      for (ir::ValueId result : reader.results) {
        if (result.valid()) find_uses(result, gathered);
      }
    }
  }

  void find_reductions() {
    for (int32_t i = 0; i < count(); ++i) {
      const ir::Node& node = axis_.node(i);
      if (!schedule::is_reduction(node.kind) || cost::joins(node)) continue;
      const std::vector<NodeId> tail =
          schedule::reduction_tail(axis_, cost::bucket_of(graph_, node.id));
      const int32_t end = axis_.position(tail.back());
      reductions_.push_back({end, false});
    }
  }

  // Of the gathers not scheduled yet, those with the smallest Path (see the head of this file).
  std::vector<size_t> smallest_paths() const {
    std::vector<size_t> candidates;
    int32_t smallest = 0;
    for (size_t g = 0; g < gathers_.size(); ++g) {
      if (gathers_[g].scheduled) continue;
      const int32_t size = gather_paths_.count(g);
      if (!candidates.empty() && size > smallest) continue;
      if (candidates.empty() || size < smallest) {
        smallest = size;
        candidates.clear();
      }
      candidates.push_back(g);
    }
    return candidates;
  }

  // What is not placed and needed for `targets`, themselves included, in program order.
  std::vector<int32_t> missing_for(const std::vector<int32_t>& targets) const {
    std::vector<int32_t> missing, work;
    for (int32_t target : targets) work.push_back(target);
    std::unordered_map<int32_t, bool> visited;  // only looked up
    while (!work.empty()) {
      const int32_t position = work.back();
      work.pop_back();
      if (placed_[static_cast<size_t>(position)] || visited[position]) continue;
      visited[position] = true;
      missing.push_back(position);
      for (int32_t need : needs_[static_cast<size_t>(position)]) work.push_back(need);
    }
    std::sort(missing.begin(), missing.end());
    return missing;
  }

  int64_t gathered_bytes(const std::vector<int32_t>& positions) const {
    int64_t bytes = 0;
    for (int32_t position : positions) {
      const int32_t gather = gather_at_[static_cast<size_t>(position)];
      if (gather >= 0) bytes += gathers_[static_cast<size_t>(gather)].bytes;
    }
    return bytes;
  }

  void schedule_best(const std::vector<size_t>& candidates) {
    struct Choice {
      std::tuple<bool, int64_t, int64_t, int64_t, int64_t, std::string> key;
      std::vector<int32_t> nodes;
    };
    std::optional<Choice> best;
    for (size_t g : candidates) {
      const Gathered& gathered = gathers_[g];
      std::vector<int32_t> to_gather = missing_for({gathered.start});
      const std::vector<int32_t> to_use = missing_for({gathered.start, gathered.last_use});
      std::vector<int32_t> to_release =
          missing_for({gathered.start, gathered.last_use, gathered.release});
      const int64_t first = gathered_bytes(to_gather);
      const int64_t further = gathered_bytes(to_use) - first;
      int64_t time = 0, gathers = 0;
      for (int32_t i : to_use) time += sim::node_time(step_, graph_, axis_.node(i), cost_).v;
      for (int32_t i : to_gather) time -= sim::node_time(step_, graph_, axis_.node(i), cost_).v;
      for (int32_t i : to_release) gathers += gather_at_[static_cast<size_t>(i)] >= 0;
      const std::string& name = graph_.value(axis_.node(gathered.start).results[0]).name;
      Choice choice{{further != 0, further, gathers, first, time, name},
                    further == 0 ? std::move(to_release) : std::move(to_gather)};
      if (!best || choice.key < best->key) best = std::move(choice);
    }
    for (int32_t position : best->nodes) place(position);
  }

  void place(int32_t position) {
    placed_[static_cast<size_t>(position)] = true;
    order_.push_back(position);
    const int32_t gather = gather_at_[static_cast<size_t>(position)];
    if (gather < 0) return;
    gathers_[static_cast<size_t>(gather)].scheduled = true;
    gather_paths_.take_out(static_cast<size_t>(gather));
    reduction_paths_.take_out(static_cast<size_t>(gather));
  }

  void follow_with_reductions() {
    for (size_t r = 0; r < reductions_.size(); ++r) {
      Reduction& reduction = reductions_[r];
      if (reduction.scheduled || reduction_paths_.count(r) > 0) continue;
      reduction.scheduled = true;
      for (int32_t position : missing_for({reduction.end})) place(position);
    }
  }

  int apply() {
    int moved = 0;
    for (int32_t i = 0; i < count(); ++i) moved += order_[static_cast<size_t>(i)] != i;
    for (int32_t position : order_) graph_.move_before(axis_.node(position).id, {});
    return moved;
  }

  const ir::Step& step_;
  ir::Graph& graph_;
  const cost::CostModel& cost_;
  schedule::Positions axis_;
  analysis::Dependences needs_;
  std::vector<Gathered> gathers_;
  std::vector<Reduction> reductions_;
  std::vector<int32_t> gather_at_;        // by position: index into gathers_, or -1
  Paths gather_paths_, reduction_paths_;  // of last uses, and of ends
  std::vector<bool> placed_;
  std::vector<int32_t> order_;  // old positions in the new order
};

}  // namespace

base::Result<Change> schedule_fast_free(ir::Step& step, const PassContext& context) {
  return move_collectives(step, context, "schedule-fast-free", kNodesMoved,
                          [&](ir::Graph& graph, std::optional<int64_t>) {
                            return Scheduler(step, graph, context.cost).run();
                          });
}

}  // namespace dc::passes
