// Types every node must satisfy: well-formed shapes, views inside their base's storage. Own ops are
// in verify_op_types.cpp.
#include <algorithm>

#include "src/ir/group.h"
#include "src/ir/verifier.h"

namespace dc::ir {
namespace {

using base::Status;

Status verify_shape(const Scope& scope, const Node& node, const Value& value) {
  const TensorType& type = value.type;
  if (type.shape.size() != type.strides.size()) {
    return offence(scope, node, "DC2201", "%" + *value.name + " needs one stride per dim");
  }
  bool bound = true, reachable = type.offset >= 0;
  for (size_t i = 0; i < type.shape.size(); ++i) {
    bound &= type.shape[i] >= 0;
    reachable &= type.strides[i] >= 0;
  }
  if (!bound && scope.stage >= Stage::Normalized) {
    return offence(
        scope, node, "DC2304",
        "%" + *value.name +
            " has a dim without a size; export with static shapes or bind the batch size");
  }
  if (bound && !reachable) {
    return offence(scope, node, "DC2201", "%" + *value.name + " has a negative stride or offset");
  }
  for (size_t axis = 0; axis < kMaxAxes; ++axis) {
    const AxisSharding& sharding = type.sharding[axis];
    const bool has_dim = sharding.dim >= 0 && static_cast<size_t>(sharding.dim) < type.shape.size();
    if (sharding.placement == AxisPlacement::Shard && !has_dim) {
      return offence(scope, node, "DC2204",
                     "%" + *value.name + " is split along a dim it does not have");
    }
  }
  return {};
}

}  // namespace

Space space_of(const Scope& scope, ValueId value) {
  const ValueId root = scope.root[value.index()];
  const int entry = scope.entry[root.index()];
  return entry >= 0 ? scope.step.state[static_cast<size_t>(entry)].location.space
                    : scope.graph.storage(root).location.space;
}

int64_t storage_of(const Scope& scope, ValueId root) {
  const Value& value = scope.value(root);
  const Node& producer = scope.graph.node(value.producer);
  const int64_t own = value.type.storage_elements();
  const int entry = scope.entry[root.index()];
  if (entry >= 0) return reserved_elements(scope.step.state[static_cast<size_t>(entry)]);
  if (producer.kind == OpKind::AllGatherStart && producer.operands.size() == 1) {
    return std::max(
        own, scope.operand(producer, 0).type.numel() * scope.step.mesh.size(group_of(producer)));
  }
  return own;
}

namespace {

Status verify_view(const Scope& scope, const Node& node) {
  const Value& base = scope.operand(node, 0);
  const int64_t reserved = storage_of(scope, scope.root[base.id.index()]);
  for (ValueId result : node.results) {
    if (!result.valid()) continue;
    const TensorType& type = scope.type(result);
    if (type.dtype != base.type.dtype) {
      return offence(scope, node, "DC2202", "a view cannot change the element type");
    }
    if (type.storage_elements() > reserved) {
      return offence(scope, node, "DC2202",
                     "the view reaches element " + std::to_string(type.storage_elements()) +
                         " of a storage of " + std::to_string(reserved) + " (%" +
                         *scope.value(scope.root[base.id.index()]).name + ")");
    }
  }
  return {};
}

// The operand that a copy takes from, or brings to, a space outside the device; -1 if there is
// none.
int outside_operand(OpKind kind) {
  const bool has = kind == OpKind::OffloadDone || kind == OpKind::OffloadIntoStart ||
                   kind == OpKind::OffloadIntoDone || kind == OpKind::ReloadStart;
  return has ? 0 : -1;
}

// All that it touches lies on the host, and it keeps compute free, whose kernels the device runs.
Status verify_host_kernel(const Scope& scope, const Node& node) {
  const auto wrong = [&](ValueId value, const char* what) {
    return offence(scope, node, "DC2316", "%" + *scope.value(value).name + what);
  };
  for (const ValueId operand : node.operands) {
    if (space_of(scope, operand) != Space::Host)
      return wrong(operand, " does not lie on the host, where the others of this kernel do");
  }
  for (const ValueId result : node.results) {
    if (scope.graph.storage(result).location.space != Space::Host)
      return wrong(result, " is made outside the host, where the operands of its kernel lie");
  }
  if (node.stream != 0) return {};
  return offence(scope, node, "DC2316", "a kernel on the host runs on the compute stream");
}

// Only copies between spaces touch what lies outside the device, and updates that are there whole.
Status verify_spaces(const Scope& scope, const Node& node) {
  if (kernel_space(scope.graph, node) != Space::Device) return verify_host_kernel(scope, node);
  for (size_t i = 0; i < node.operands.size(); ++i) {
    const bool outside = space_of(scope, node.operands[i]) != Space::Device;
    if (outside == (outside_operand(node.kind) == static_cast<int>(i))) continue;
    return offence(scope, node, "DC2316",
                   "%" + *scope.operand(node, i).name +
                       (outside ? " lies outside the device, where only copies may touch it"
                                : " already lies in the device's memory"));
  }
  for (ValueId result : node.results) {
    if (!result.valid() || scope.root[result.index()] != result || node.kind == OpKind::State)
      continue;
    const bool outside = scope.graph.storage(result).location.space != Space::Device;
    if (outside == (node.kind == OpKind::OffloadStart)) continue;
    return offence(scope, node, "DC2316",
                   "%" + *scope.value(result).name +
                       (outside ? " is made outside the device" : " does not leave the device"));
  }
  return {};
}

// Follows views back to the owner of the storage, for the results of one node.
void trace_storage(Scope& scope, const Node& node) {
  const bool view = is_view(node) && !node.operands.empty();
  for (ValueId result : node.results) {
    if (!result.valid()) continue;
    const ValueId root = view ? scope.root[node.operands[0].index()] : result;
    scope.root[result.index()] = root;
    scope.entry[result.index()] = view ? scope.entry[root.index()] : -1;
  }
  if (node.kind != OpKind::State || node.results.size() != 1 || !node.results[0].valid()) return;
  const StateId entry = entry_of(node);
  const bool known = entry.valid() && entry.index() < scope.step.state.size();
  if (known) scope.entry[node.results[0].index()] = entry.v;
}

}  // namespace

Status verify_types(Scope& scope) {
  scope.root.assign(scope.graph.value_capacity(), ValueId{});
  scope.entry.assign(scope.graph.value_capacity(), -1);
  for (NodeId id : scope.order) {
    const Node& node = scope.graph.node(id);
    for (ValueId result : node.results) {
      if (result.valid()) DC_RETURN_IF_ERROR(verify_shape(scope, node, scope.value(result)));
    }
    trace_storage(scope, node);
    if (node.kind != OpKind::Aten) {
      DC_RETURN_IF_ERROR(verify_op_types(scope, node));
    }
    DC_RETURN_IF_ERROR(verify_spaces(scope, node));
    if (is_view(node)) DC_RETURN_IF_ERROR(verify_view(scope, node));
    if (alias_of(node) != AliasRule::None) continue;
    for (ValueId result : node.results) {
      if (result.valid()) return offence(scope, node, "DC2203", "this op has no tensor results");
    }
  }
  return {};
}

}  // namespace dc::ir
