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
// Which gathers a node stands on is one bit set per node, so a candidate costs what is still to be
// scheduled for it. Nodes change places, not what they read: a node follows the writers of what it
// reads and the readers of what it writes. So all numbers stay.
#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "src/cost/transfer.h"
#include "src/passes/pass.h"
#include "src/passes/reduction_tail.h"
#include "src/passes/time_axis.h"
#include "src/sim/simulate.h"

namespace dc::passes {
namespace {

using ir::NodeId;
using ir::OpKind;
using Bits = std::vector<uint64_t>;

// For each position, the earlier positions it must follow.
class Dependences {
 public:
  explicit Dependences(const TimeAxis& axis) : of(axis.live.order.size()) {
    for (size_t i = 0; i < of.size(); ++i) add(axis, static_cast<int32_t>(i));
  }
  std::vector<std::vector<int32_t>> of;

 private:
  struct Storage {
    int32_t writer = -1;
    std::vector<int32_t> readers;  // since the last write
  };

  void add(const TimeAxis& axis, int32_t position) {
    const ir::Node& node = axis.node(position);
    for (size_t i = 0; i < node.operands.size(); ++i) {
      after(position, axis.position(axis.graph.value(node.operands[i]).producer));
      // The end of a gathered value changes it, as far as order is concerned.
      const bool writes =
          node.kind == OpKind::Release || (ir::info(node.kind).mutated >> i & 1) != 0;
      touch(axis, position, node.operands[i], writes);
    }
    if (!ir::is_done(node.kind)) return;
    // Until the collective is done, peers may read what travels.
    const ir::Node& start = axis.graph.node(axis.graph.value(node.operands[0]).producer);
    for (size_t i = 0; i < start.operands.size(); ++i)
      touch(axis, position, start.operands[i], (ir::info(start.kind).mutated >> i & 1) != 0);
  }

  void touch(const TimeAxis& axis, int32_t position, ir::ValueId value, bool writes) {
    const int owner = axis.storages.owner(value);
    Storage& storage = storages_[owner >= 0 ? -1 - owner : axis.storages.root(value).v];
    after(position, storage.writer);
    if (!writes) {
      storage.readers.push_back(position);
      return;
    }
    for (int32_t reader : storage.readers) after(position, reader);
    storage = {position, {}};
  }

  void after(int32_t position, int32_t other) {
    if (other >= 0 && other < position) of[static_cast<size_t>(position)].push_back(other);
  }

  std::unordered_map<int64_t, Storage> storages_;  // only looked up
};

class Scheduler {
 public:
  Scheduler(const ir::Step& step, ir::Graph& graph, const cost::CostModel& cost)
      : step_(step), graph_(graph), cost_(cost), axis_(step, graph, cost), needs_(axis_) {}

  // Returns how many nodes changed places.
  int run() {
    find_gathers();
    find_reductions();
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
    Bits path;
  };
  struct Reduction {
    int32_t end = -1;  // the last of its tail
    bool scheduled = false;
    Bits path;
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
    stands_on_.assign(static_cast<size_t>(count()), Bits((gathers_.size() + 63) / 64));
    for (int32_t i = 0; i < count(); ++i) {
      Bits& bits = stands_on_[static_cast<size_t>(i)];
      for (int32_t need : needs_.of[static_cast<size_t>(i)]) {
        const Bits& below = stands_on_[static_cast<size_t>(need)];
        for (size_t w = 0; w < bits.size(); ++w) bits[w] |= below[w];
      }
      const int32_t gather = gather_at_[static_cast<size_t>(i)];
      if (gather >= 0) bits[static_cast<size_t>(gather) / 64] |= uint64_t{1} << (gather % 64);
    }
    for (Gathered& gathered : gathers_)
      gathered.path = stands_on_[static_cast<size_t>(gathered.last_use)];
    placed_.assign(static_cast<size_t>(count()), false);
  }

  // Through views; a view nobody reads is its own last use.
  void find_uses(ir::ValueId value, Gathered& gathered) const {
    for (const ir::Use& use : graph_.value(value).uses) {
      const ir::Node& reader = graph_.node(use.node);
      const int32_t position = axis_.position(use.node);
      if (reader.kind == OpKind::Release) {
        gathered.release = std::max(gathered.release, position);
        continue;
      }
      gathered.last_use = std::max(gathered.last_use, position);
      if (!analysis::is_view(reader)) continue;
      for (ir::ValueId result : reader.results) {
        if (result.valid()) find_uses(result, gathered);
      }
    }
  }

  void find_reductions() {
    for (int32_t i = 0; i < count(); ++i) {
      const ir::Node& node = axis_.node(i);
      if (!is_reduction(node.kind) || cost::joins(node)) continue;
      const std::vector<NodeId> tail = reduction_tail(axis_, cost::bucket_of(graph_, node.id));
      const int32_t end = axis_.position(tail.back());
      reductions_.push_back({end, false, stands_on_[static_cast<size_t>(end)]});
    }
  }

  // Gathers of the smallest size of Path among those not scheduled.
  std::vector<size_t> smallest_paths() const {
    std::vector<size_t> candidates;
    int smallest = 0;
    for (size_t g = 0; g < gathers_.size(); ++g) {
      if (gathers_[g].scheduled) continue;
      int size = 0;
      for (uint64_t word : gathers_[g].path) size += __builtin_popcountll(word);
      if (!candidates.empty() && size > smallest) continue;
      if (candidates.empty() || size < smallest) {
        smallest = size;
        candidates.clear();
      }
      candidates.push_back(g);
    }
    return candidates;
  }

  // What is not placed and needed for `target`, itself included, in program order.
  std::vector<int32_t> missing_for(const std::vector<int32_t>& targets) const {
    std::vector<int32_t> missing, work;
    std::vector<int32_t> seen;
    for (int32_t target : targets) work.push_back(target);
    std::unordered_map<int32_t, bool> visited;  // only looked up
    while (!work.empty()) {
      const int32_t position = work.back();
      work.pop_back();
      if (placed_[static_cast<size_t>(position)] || visited[position]) continue;
      visited[position] = true;
      missing.push_back(position);
      for (int32_t need : needs_.of[static_cast<size_t>(position)]) work.push_back(need);
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
    const size_t word = static_cast<size_t>(gather) / 64;
    const uint64_t mask = ~(uint64_t{1} << (gather % 64));
    for (Gathered& other : gathers_) other.path[word] &= mask;
    for (Reduction& other : reductions_) other.path[word] &= mask;
  }

  void follow_with_reductions() {
    for (Reduction& reduction : reductions_) {
      const bool free = std::all_of(reduction.path.begin(), reduction.path.end(),
                                    [](uint64_t word) { return word == 0; });
      if (reduction.scheduled || !free) continue;
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
  TimeAxis axis_;
  Dependences needs_;
  std::vector<Gathered> gathers_;
  std::vector<Reduction> reductions_;
  std::vector<int32_t> gather_at_;  // by position: index into gathers_, or -1
  std::vector<Bits> stands_on_;     // by position
  std::vector<bool> placed_;
  std::vector<int32_t> order_;  // old positions in the new order
};

}  // namespace

base::Result<Change> schedule_fast_free(ir::Step& step, PassContext& context) {
  return move_collectives(step, context, "schedule-fast-free", "nodes change places",
                          [&](ir::Graph& graph, std::optional<int64_t>) {
                            return Scheduler(step, graph, context.cost).run();
                          });
}

}  // namespace dc::passes
