// prefetch-gathers: a gather starts as late as still hides it behind compute, and no earlier than
// the budget allows.
//
// Walks each program backwards along the time that compute alone would take. The link is a second
// resource: a gather ends before its first use and before the collective that follows it on the
// link begins, so its latest start is that moment less its own time. Latest, not earliest
// (DeepCompile, arXiv 2504.09983, starts gathers as early as memory allows): what is hidden anyway
// need not hold memory longer. Kernels, collectives and the order of what each reads stay the same;
// so do all numbers.
#include <algorithm>

#include "src/cost/transfer.h"
#include "src/passes/pass.h"
#include "src/passes/time_axis.h"
#include "src/sim/simulate.h"

namespace dc::passes {
namespace {

using base::Nanos;
using ir::NodeId;
using ir::OpKind;

class Prefetcher {
 public:
  Prefetcher(const ir::Step& step, ir::Graph& graph, const cost::CostModel& cost,
             std::optional<int64_t> limit)
      : step_(step), graph_(graph), cost_(cost), limit_(limit), axis_(step, graph, cost) {}

  // Returns how many gathers moved.
  int run() {
    const auto count = static_cast<int32_t>(axis_.live.order.size());
    Nanos link_free = axis_.time_before(count);
    for (int32_t i = count; i-- > 0;) {
      const ir::Node& node = axis_.node(i);
      if (!cost::transfer_of(graph_, node) || cost::joins(node)) continue;
      const std::vector<NodeId> bucket = cost::bucket_of(graph_, node.id);
      link_free = std::min(link_free, needed(bucket)) - sim::node_time(step_, graph_, node, cost_);
      if (is_gather(node.kind)) plan_move(bucket, i, link_free);
    }
    // The one needed first is moved first, so that gathers that start at one place start in the
    // order of need.
    for (auto move = moves_.rbegin(); move != moves_.rend(); ++move) apply(*move);
    return static_cast<int>(moves_.size());
  }

 private:
  struct Move {
    std::vector<NodeId> bucket;
    NodeId before;
  };

  // When compute alone would first wait for one of them.
  Nanos needed(const std::vector<NodeId>& bucket) const {
    Nanos first{INT64_MAX};
    for (NodeId start : bucket) {
      const NodeId done = graph_.value(graph_.node(start).results[0]).uses[0].node;
      first = std::min(first, axis_.time_before(axis_.position(done)));
    }
    return first;
  }

  void plan_move(const std::vector<NodeId>& bucket, int32_t position, Nanos begin) {
    int32_t target = last_position_at(begin, position);
    int64_t bytes = 0;
    for (NodeId id : bucket) {
      target = std::max(target, earliest(graph_.node(id), position));
      bytes += bytes_of(graph_.node(id));
    }
    for (int32_t i = position; limit_ && i-- > target;) {
      if (axis_.bytes[static_cast<size_t>(i)] + bytes > *limit_) target = i + 1;
    }
    while (target < position && may_move(axis_.node(target))) ++target;
    if (target >= position || axis_.time_before(target) == axis_.time_before(position)) return;
    for (int32_t i = target; i < position; ++i) axis_.bytes[static_cast<size_t>(i)] += bytes;
    moves_.push_back({bucket, axis_.node(target).id});
  }

  static bool is_gather(OpKind kind) {
    return kind == OpKind::AllGatherStart || kind == OpKind::AllGatherIntoStart;
  }
  // Nodes that this pass moves cannot mark a place.
  static bool may_move(const ir::Node& node) {
    return is_gather(node.kind) || node.kind == OpKind::Cast;
  }

  // The last position, at most `position`, that compute reaches no later than `time`; the first one
  // if none.
  int32_t last_position_at(Nanos time, int32_t position) const {
    const auto begin = axis_.at.begin(), end = begin + position + 1;
    return std::max<int32_t>(0,
                             static_cast<int32_t>(std::upper_bound(begin, end, time) - begin) - 1);
  }

  // A shard that travels in a smaller type is cast just before.
  NodeId cast_of(const ir::Node& start) const {
    const ir::Node& producer = graph_.node(graph_.value(start.operands.back()).producer);
    return producer.kind == OpKind::Cast ? producer.id : NodeId{};
  }

  // After the shard exists and after the last write to it; into state, after its last reader too.
  int32_t earliest(const ir::Node& start, int32_t position) const {
    const NodeId cast = cast_of(start);
    const ir::ValueId shard = cast.valid() ? graph_.node(cast).operands[0] : start.operands.back();
    const bool into = start.kind == OpKind::AllGatherIntoStart;
    int32_t first = axis_.position(graph_.value(shard).producer) + 1;
    if (into) first = std::max(first, axis_.position(graph_.value(start.operands[0]).producer) + 1);
    for (int32_t i = position; i-- > first;) {
      if (axis_.writes(axis_.node(i), shard)) return i + 1;
      if (into && axis_.touches(axis_.node(i), start.operands[0])) return i + 1;
    }
    return first;
  }

  int64_t bytes_of(const ir::Node& start) const {
    const auto transfer = cost::transfer_of(graph_, start);
    const int64_t shard = transfer->shard * transfer->element_bytes;
    const bool fresh = start.kind == OpKind::AllGatherStart;
    return (fresh ? aligned_bytes(shard * step_.mesh.world()) : 0) +
           (cast_of(start).valid() ? aligned_bytes(shard) : 0);
  }

  void apply(const Move& move) {
    for (NodeId start : move.bucket) {
      const NodeId cast = cast_of(graph_.node(start));
      if (cast.valid()) graph_.move_before(cast, move.before);
    }
    for (NodeId start : move.bucket) graph_.move_before(start, move.before);
  }

  const ir::Step& step_;
  ir::Graph& graph_;
  const cost::CostModel& cost_;
  std::optional<int64_t> limit_;
  TimeAxis axis_;
  std::vector<Move> moves_;
};

}  // namespace

base::Result<Change> prefetch_gathers(ir::Step& step, PassContext& context) {
  return move_collectives(step, context, "prefetch-gathers", "gathers start earlier",
                          [&](ir::Graph& graph, std::optional<int64_t> limit) {
                            return Prefetcher(step, graph, context.cost, limit).run();
                          });
}

}  // namespace dc::passes
