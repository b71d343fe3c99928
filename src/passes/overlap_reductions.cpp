// overlap-reductions: compute goes on while a gradient is reduced; the done half waits where the
// reduction is expected to have ended.
//
// Walks each program forwards along the time that compute alone would take, with the link as a
// second resource that serves collectives in order. The done of a reduction, with the small kernels
// that stand on it, moves to the first position that compute reaches after the reduction's end, but
// never past a reader, and only as far as the budget allows: the gradient stays alive until its
// done. Kernels, collectives and the order of sums stay the same; so do all numbers.
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

class Overlapper {
 public:
  Overlapper(const ir::Step& step, ir::Graph& graph, const cost::CostModel& cost,
             std::optional<int64_t> limit)
      : step_(step), graph_(graph), cost_(cost), limit_(limit), axis_(step, graph, cost) {}

  // Returns how many reductions moved.
  int run() {
    Nanos link_free;
    for (int32_t i = 0; i < count(); ++i) {
      const ir::Node& node = axis_.node(i);
      if (!cost::transfer_of(graph_, node)) continue;
      link_free =
          std::max(link_free, axis_.time_before(i)) + sim::node_time(step_, graph_, node, cost_);
      if (node.kind == OpKind::ReduceScatterStart || node.kind == OpKind::AllReduceStart)
        plan_move(node, link_free);
    }
    for (const Move& move : moves_) apply(move);
    return static_cast<int>(moves_.size());
  }

 private:
  // The done half and the nodes right after it that stand on it: accumulation, scale, square sum.
  using Tail = std::vector<NodeId>;
  struct Move {
    Tail tail;
    NodeId before;  // invalid: the end of the program
  };

  int32_t count() const { return static_cast<int32_t>(axis_.live.order.size()); }

  static bool may_follow(OpKind kind) {
    return kind == OpKind::Accumulate || kind == OpKind::Scale || kind == OpKind::SquareSum;
  }
  // Nodes that this pass moves cannot mark a place.
  static bool may_move(OpKind kind) {
    return may_follow(kind) || kind == OpKind::ReduceScatterDone || kind == OpKind::AllReduceDone;
  }

  Tail tail_of(const ir::Node& start) const {
    const ir::Node& done = graph_.node(graph_.value(start.results[0]).uses[0].node);
    Tail tail = {done.id};
    for (int32_t i = axis_.position(done.id) + 1; i < count(); ++i) {
      const ir::Node& node = axis_.node(i);
      if (!may_follow(node.kind) || !conflicts(node, tail)) break;
      tail.push_back(node.id);
    }
    return tail;
  }

  // True if the node touches what a node of the tail makes or changes. Square sums fill different
  // cells of one row: they do not meet there.
  bool conflicts(const ir::Node& node, const Tail& tail) const {
    for (NodeId id : tail) {
      const ir::Node& member = graph_.node(id);
      const bool both_sum = member.kind == OpKind::SquareSum && node.kind == OpKind::SquareSum;
      const ir::ValueId made = member.results.empty() ? member.operands[0] : member.results[0];
      for (ir::ValueId operand : node.operands) {
        if (!both_sum && axis_.shares_storage(operand, made)) return true;
      }
    }
    return false;
  }

  // The first node after the tail that reads what it makes or writes what travels; the end of the
  // program if none.
  int32_t latest(const ir::Node& start, const Tail& tail) const {
    for (int32_t i = axis_.position(tail.back()) + 1; i < count(); ++i) {
      const ir::Node& node = axis_.node(i);
      if (conflicts(node, tail) || axis_.writes(node, start.operands[0])) return i;
    }
    return count();
  }

  void plan_move(const ir::Node& start, Nanos end) {
    const Tail tail = tail_of(start);
    const int32_t position = axis_.position(tail.back()) + 1;
    const int32_t limit = latest(start, tail);
    const int64_t bytes = bytes_of(start, tail);
    int32_t target = position;
    while (target < limit && axis_.time_before(target) < end && fits(target, bytes)) ++target;
    while (target > position && target < count() && may_move(axis_.node(target).kind)) --target;
    if (target <= position || axis_.time_before(target) == axis_.time_before(position)) return;
    for (int32_t i = position; i < target; ++i) axis_.bytes[static_cast<size_t>(i)] += bytes;
    moves_.push_back({tail, target < count() ? axis_.node(target).id : NodeId{}});
  }

  bool fits(int32_t position, int64_t bytes) const {
    return !limit_ || axis_.bytes[static_cast<size_t>(position)] + bytes <= *limit_;
  }

  // What stays alive longer: the summand that travels, unless it is state, and the result if it is
  // added to a sum.
  int64_t bytes_of(const ir::Node& start, const Tail& tail) const {
    const auto transfer = cost::transfer_of(graph_, start);
    int64_t bytes =
        axis_.storages.owner(start.operands[0]) < 0 ? aligned_bytes(transfer->bytes().v) : 0;
    for (NodeId id : tail) {
      const bool accumulates = graph_.node(id).kind == OpKind::Accumulate;
      if (accumulates) bytes += aligned_bytes(transfer->shard * base::byte_size(ir::DType::F32));
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
  TimeAxis axis_;
  std::vector<Move> moves_;
};

}  // namespace

base::Result<Change> overlap_reductions(ir::Step& step, PassContext& context) {
  return move_collectives(step, context, "overlap-reductions", "reductions run beside compute",
                          [&](ir::Graph& graph, std::optional<int64_t> limit) {
                            return Overlapper(step, graph, context.cost, limit).run();
                          });
}

}  // namespace dc::passes
