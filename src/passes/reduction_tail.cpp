#include "src/passes/reduction_tail.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace dc::passes {
namespace {

using ir::NodeId;
using ir::OpKind;

// What a tail makes or changes, and what travels. Square sums fill, and permissions read, different
// cells of one row: those of different parameters do not meet there.
class Touched {
 public:
  explicit Touched(const TimeAxis& axis) : axis_(axis) {}

  void add(const ir::Node& member) {
    const bool sums = member.kind == OpKind::SquareSum;
    if (sums) params_.insert(member.int_arg("param"));
    const ir::ValueId made = member.results.empty() ? member.operands[0] : member.results[0];
    const auto [entry, is_new] = only_sums_.try_emplace(axis_.storage_key(made), sums);
    entry->second = entry->second && sums;
  }
  void add_travelling(ir::ValueId value) { travelling_.insert(axis_.storage_key(value)); }

  bool meets(const ir::Node& node) const {
    for (ir::ValueId operand : node.operands) {
      const auto found = only_sums_.find(axis_.storage_key(operand));
      if (found == only_sums_.end()) continue;
      const bool is_elsewhere =
          node.kind == OpKind::SquareSum ||
          (node.kind == OpKind::Permit && !params_.contains(node.int_arg("param")));
      if (!(found->second && is_elsewhere)) return true;
    }
    const uint32_t mutated = ir::info(node.kind).mutated;
    for (size_t i = 0; mutated >> i != 0 && i < node.operands.size(); ++i) {
      const bool writes = (mutated >> i & 1) != 0;
      if (writes && travelling_.contains(axis_.storage_key(node.operands[i]))) return true;
    }
    return false;
  }

 private:
  const TimeAxis& axis_;
  std::unordered_map<int64_t, bool> only_sums_;  // only looked up
  std::unordered_set<int64_t> travelling_, params_;
};

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
  Touched touched(axis);
  const auto count = static_cast<int32_t>(axis.live.order.size());
  for (int32_t i = axis.position(dones[0]); i < count; ++i) {
    const ir::Node& node = axis.node(i);
    const bool is_done = std::find(dones.begin(), dones.end(), node.id) != dones.end();
    const bool stands_on_one = node.kind == OpKind::Accumulate || node.kind == OpKind::Scale ||
                               node.kind == OpKind::SquareSum;
    if (!is_done && !(stands_on_one && touched.meets(node))) break;
    tail.push_back(node.id);
    touched.add(node);
  }
  return tail;
}

int32_t latest_tail(const TimeAxis& axis, const std::vector<NodeId>& bucket,
                    const std::vector<NodeId>& tail, int32_t end) {
  Touched touched(axis);
  for (NodeId id : tail) touched.add(axis.graph.node(id));
  for (NodeId start : bucket) touched.add_travelling(axis.graph.node(start).operands[0]);
  for (int32_t i = axis.position(tail.back()) + 1; i < end; ++i) {
    if (touched.meets(axis.node(i))) return i;
  }
  return end;
}

}  // namespace dc::passes
