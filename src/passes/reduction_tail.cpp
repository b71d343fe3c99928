#include "src/passes/reduction_tail.h"

#include <algorithm>

namespace dc::passes {
namespace {

using ir::NodeId;
using ir::OpKind;

// True if the node touches what a node of the tail makes or changes. Square sums fill different
// cells of one row: they do not meet there.
bool conflicts(const TimeAxis& axis, const ir::Node& node, const std::vector<NodeId>& tail) {
  for (NodeId id : tail) {
    const ir::Node& member = axis.graph.node(id);
    const bool both_sum = member.kind == OpKind::SquareSum && node.kind == OpKind::SquareSum;
    const ir::ValueId made = member.results.empty() ? member.operands[0] : member.results[0];
    for (ir::ValueId operand : node.operands) {
      if (!both_sum && axis.shares_storage(operand, made)) return true;
    }
  }
  return false;
}

}  // namespace

bool is_reduction(OpKind start) {
  return start == OpKind::ReduceScatterStart || start == OpKind::AllReduceStart;
}

std::vector<NodeId> reduction_tail(const TimeAxis& axis, const std::vector<NodeId>& bucket) {
  std::vector<NodeId> dones;
  for (NodeId start : bucket) {
    const ir::ValueId started = axis.graph.node(start).results[0];
    dones.push_back(axis.graph.value(started).uses[0].node);
  }
  std::vector<NodeId> tail;
  const auto count = static_cast<int32_t>(axis.live.order.size());
  for (int32_t i = axis.position(dones[0]); i < count; ++i) {
    const ir::Node& node = axis.node(i);
    const bool is_done = std::find(dones.begin(), dones.end(), node.id) != dones.end();
    const bool stands_on_one = node.kind == OpKind::Accumulate || node.kind == OpKind::Scale ||
                               node.kind == OpKind::SquareSum;
    if (!is_done && !(stands_on_one && conflicts(axis, node, tail))) break;
    tail.push_back(node.id);
  }
  return tail;
}

int32_t latest_tail(const TimeAxis& axis, const std::vector<NodeId>& bucket,
                    const std::vector<NodeId>& tail) {
  const auto count = static_cast<int32_t>(axis.live.order.size());
  for (int32_t i = axis.position(tail.back()) + 1; i < count; ++i) {
    const ir::Node& node = axis.node(i);
    if (conflicts(axis, node, tail)) return i;
    for (NodeId start : bucket) {
      if (axis.writes(node, axis.graph.node(start).operands[0])) return i;
    }
  }
  return count;
}

}  // namespace dc::passes
