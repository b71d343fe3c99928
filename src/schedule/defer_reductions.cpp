#include "src/schedule/defer_reductions.h"

#include <algorithm>

#include "src/cost/transfer.h"
#include "src/ir/effects.h"
#include "src/schedule/reduction_tail.h"
#include "src/schedule/time_axis.h"
#include "src/sim/simulate.h"

namespace dc::schedule {
namespace {

using base::Nanos;
using ir::NodeId;
using ir::OpKind;

class ReductionDeferral {
 public:
  // `most`: bytes that may travel at once.
  ReductionDeferral(const ir::Step& step, ir::Graph& graph, const cost::CostModel& cost,
                    std::optional<int64_t> limit, int64_t most)
      : step_(step),
        graph_(graph),
        cost_(cost),
        limit_(limit),
        most_(most),
        axis_(step, graph, cost),
        travelling_(axis_.live.order.size()),
        moved_to_(axis_.live.order.size(), -1) {}

  // Returns how many reductions moved.
  int run() {
    std::vector<Nanos> stream_free(step_.streams.size());
    for (int32_t i = 0; i < count(); ++i) {
      const ir::Node& node = axis_.node(i);
      if (!cost::transfer_of(graph_, node) || cost::joins(node)) continue;
      const int32_t begin = std::max(i, moved_to_[static_cast<size_t>(i)]);
      Nanos& free = stream_free[static_cast<size_t>(node.stream)];
      free = std::max(free, axis_.time_before(begin)) + sim::node_time(step_, graph_, node, cost_);
      if (is_reduction(node.kind)) plan_move(cost::bucket_of(graph_, node.id), free, begin);
    }
    for (const Move& move : moves_) apply(move);
    return static_cast<int>(moves_.size());
  }

 private:
  using Nodes = std::vector<NodeId>;
  struct Move {
    Nodes tail;
    NodeId before;  // invalid: the end of the program
  };

  int32_t count() const { return static_cast<int32_t>(axis_.live.order.size()); }

  // `begin`: where the bucket will start.
  void plan_move(const Nodes& bucket, Nanos end, int32_t begin) {
    const Nodes tail = reduction_tail(axis_, bucket);
    const int32_t position = std::max(begin, axis_.position(tail.back()) + 1);
    const auto in_time = std::lower_bound(axis_.at.begin(), axis_.at.end(), end);
    const int32_t wanted = std::min(count(), static_cast<int32_t>(in_time - axis_.at.begin()));
    const int32_t limit = latest_tail(axis_, bucket, tail, wanted);
    const int64_t bytes = bytes_of(bucket, tail);
    const int64_t own = wire_bytes(bucket[0]);
    int64_t wire = own;
    int32_t target = position;
    while (target < limit && fits(target, bytes) && may_start_beside(target, wire)) ++target;
    while (target > position && target < count() && !splits_no_tail(axis_.node(target))) --target;
    if (target <= position || axis_.time_before(target) == axis_.time_before(position)) return;
    for (int32_t i = position; i < target; ++i) {
      axis_.bytes[static_cast<size_t>(i)] += bytes;
      travelling_[static_cast<size_t>(i)] += own;
    }
    for (NodeId id : tail) {
      if (is_reduction(graph_.node(id).kind))
        moved_to_[static_cast<size_t>(axis_.position(id))] = target;
    }
    moves_.push_back({tail, target < count() ? axis_.node(target).id : NodeId{}});
  }

  bool fits(int32_t position, int64_t bytes) const {
    return !limit_ || axis_.bytes[static_cast<size_t>(position)] + bytes <= *limit_;
  }

  int64_t wire_bytes(NodeId first) const {
    return cost::bucket_bytes(graph_, graph_.node(first)).v;
  }

  // Whether the reduction that starts at `position`, if one does, may travel next to `wire` bytes
  // and what travels there already; it is then part of `wire`.
  bool may_start_beside(int32_t position, int64_t& wire) const {
    const ir::Node& node = axis_.node(position);
    if (most_ == INT64_MAX || !is_reduction(node.kind) || cost::joins(node)) return true;
    wire += wire_bytes(node.id);
    return travelling_[static_cast<size_t>(position)] + wire <= most_;
  }

  // Bytes that live longer: the inputs of the reductions under way, unless they are state or become
  // the sums in place, and the results that are added to an accumulator.
  int64_t bytes_of(const Nodes& bucket, const Nodes& tail) const {
    int64_t bytes = 0;
    for (NodeId start : bucket) {
      const ir::Node& node = graph_.node(start);
      if (axis_.storages.owner(node.operands[0]) < 0 && !ir::writes(node, 0))
        bytes += aligned_bytes(cost::transfer_of(graph_, node)->bytes().v);
    }
    for (NodeId id : tail) {
      const ir::Node& node = graph_.node(id);
      if (node.kind == OpKind::Accumulate)
        bytes += aligned_bytes(graph_.value(node.operands[1]).type.bytes().v);
    }
    return bytes;
  }

  void apply(const Move& move) {
    for (NodeId id : move.tail) graph_.move_before(id, move.before);
  }

  const ir::Step& step_;
  ir::Graph& graph_;
  const cost::CostModel& cost_;
  std::optional<int64_t> limit_;
  int64_t most_;
  TimeAxis axis_;
  std::vector<int64_t> travelling_;  // by position: bytes under way because of moves
  std::vector<int32_t> moved_to_;    // by position: where a reduction moves with another's tail
  std::vector<Move> moves_;
};

}  // namespace

int defer_reductions(const ir::Step& step, ir::Graph& graph, const cost::CostModel& cost,
                     std::optional<int64_t> limit, int64_t most_bytes) {
  return ReductionDeferral(step, graph, cost, limit, most_bytes).run();
}

}  // namespace dc::schedule
