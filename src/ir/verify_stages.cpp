// What each stage forbids or demands of one program.
#include <string_view>
#include <unordered_map>

#include "src/ir/verifier.h"

namespace dc::ir {
namespace {

using base::Status;

Status verify_leftovers(const Scope& scope, const Node& node) {
  if (scope.stage == Stage::Imported) {
    const bool allowed =
        node.kind == OpKind::Aten || node.kind == OpKind::Input || node.kind == OpKind::State;
    return allowed ? Status()
                   : offence(scope, node, "DC2301",
                             "an imported program holds ATen ops, inputs and state only");
  }
  if (node.kind != OpKind::Aten) return {};
  const AtenInfo& aten = *node.overload.info();  // the structure check has seen it
  if (aten.cls == AtenClass::Identity) {
    return offence(scope, node, "DC2302", "normalization removes this op; run normalize-graph");
  }
  if (aten.random) {
    return offence(scope, node, "DC2303",
                   "random numbers must be explicit after normalization; run normalize-graph");
  }
  return {};
}

// For more than one rank a gradient comes out of a reduction, or is a sum of reduced shards.
bool comes_from_reduction(const Scope& scope, ValueId gradient) {
  const ValueId root = scope.root[gradient.index()];
  const Node& producer = scope.graph.node(scope.value(root).producer);
  if (producer.kind == OpKind::ReduceScatterStart || producer.kind == OpKind::AllReduceStart)
    return true;
  const bool passes_on = producer.kind == OpKind::AllGatherStart ||
                         producer.kind == OpKind::OffloadStart ||
                         producer.kind == OpKind::ReloadStart;
  if (passes_on) return comes_from_reduction(scope, producer.operands[0]);
  const int entry = scope.entry[root.index()];
  return entry >= 0 && scope.step.state[static_cast<size_t>(entry)].role == StateRole::Accumulator;
}

bool is_whole_or_shard(const TensorType& type, const Mesh& mesh) {
  const AxisMask own =
      axes_with(type, AxisPlacement::Partial) | axes_with(type, AxisPlacement::Varying);
  return (own & mesh.wide()) == 0;
}

Status verify_update(const Scope& scope, const Node& node, std::vector<int>& updates) {
  if (!is_update(node.kind)) return {};
  if (!scope.is_last)
    return offence(scope, node, "DC2307", "only the last program may update parameters");
  const ValueId gradient = node.operands[gradient_operand(node.kind).value()];
  const bool reduced = is_whole_or_shard(scope.type(gradient), scope.step.mesh) &&
                       (scope.step.mesh.world() == 1 || comes_from_reduction(scope, gradient));
  if (!reduced) {
    return offence(
        scope, node, "DC2306",
        "the gradient %" + *scope.value(gradient).name + " is not reduced over all ranks");
  }
  ++updates[static_cast<size_t>(node.integer(Attr::Param))];
  return {};
}

// Whether the cell says of all that a rank updates that it is finite.
bool decides(const Mesh& mesh, const Node& square_sum) {
  if (mesh.world() == 1) return true;
  if (square_sum.integer(Attr::Whole) != 0) return false;
  return square_sum.find(Attr::Axes) == nullptr ||
         (square_sum.find(Attr::Decides) != nullptr && square_sum.integer(Attr::Decides) != 0);
}

// Ranks that update the same range decide alike whether they do: from the same numbers.
Status verify_decisions(const Scope& scope) {
  std::vector<bool> decided(static_cast<size_t>(scope.trainable));  // by column
  for (NodeId id : scope.order) {
    const Node& node = scope.graph.node(id);
    const auto column = [&] { return static_cast<size_t>(node.integer(Attr::Param)); };
    if (node.kind == OpKind::SquareSum) decided[column()] = decides(scope.step.mesh, node);
    if (node.kind != OpKind::CheckFinite || decided[column()]) continue;
    return offence(scope, node, "DC2318",
                   "no square sum before it is of all that this rank and its replicas update");
  }
  return {};
}

Status verify_update_counts(const Scope& scope, const std::vector<int>& updates) {
  if (!scope.is_last) return {};
  size_t column = 0;
  for (const Parameter& parameter : scope.step.parameters) {
    if (!parameter.trainable) continue;
    const int count = updates[column++];
    if (count == 1) continue;
    return table_offence(scope.step, scope.stage, "DC2307",
                         "parameter '" + parameter.fqn + "' is updated " + std::to_string(count) +
                             " times in program @" + scope.graph.name() + ", not once");
  }
  return {};
}

// Until the update is there the last program hands out the gradient of every trainable parameter,
// and of no other.
Status verify_gradients(const Scope& scope) {
  if (!scope.is_last) return {};
  std::unordered_map<std::string_view, const Output*> gradients;
  for (const Output& output : scope.graph.outputs) {
    if (output.kind == OutputKind::Gradient) gradients[output.fqn] = &output;
  }
  for (const Parameter& parameter : scope.step.parameters) {
    const auto found = gradients.find(parameter.fqn);
    const Output* gradient = found == gradients.end() ? nullptr : found->second;
    const std::string where =
        "program @" + scope.graph.name() + ": parameter '" + parameter.fqn + "' ";
    if ((gradient != nullptr) != parameter.trainable) {
      return table_offence(
          scope.step, scope.stage, "DC2106",
          where + (parameter.trainable ? "has no gradient" : "is frozen and has a gradient"));
    }
    if (scope.stage > Stage::Imported || gradient == nullptr) continue;
    const TensorType& type = scope.type(gradient->value);
    if (type.shape == parameter.shape && base::is_floating(type.dtype)) continue;
    return table_offence(scope.step, scope.stage, "DC2106",
                         where + "has a gradient of another shape");
  }
  return {};
}

Status verify_place(const Scope& scope, const Node& node, const Location& location, int64_t bytes,
                    const std::string& what) {
  if (bytes == 0) return {};
  if (!location.placed() || location.bytes < bytes) {
    return offence(scope, node, "DC2312",
                   what + " has no place for its " + std::to_string(bytes) + " bytes");
  }
  const bool inside = location.offset + location.bytes <= scope.step.arena_bytes[location.space];
  if (inside && location.offset % base::kAlignment == 0) return {};
  return offence(scope, node, "DC2313", what + " lies outside its arena or off its alignment");
}

Status verify_locations(const Scope& scope, const Node& node, const std::vector<bool>& in_outputs) {
  DC_RETURN_IF_ERROR(verify_place(scope, node, node.scratch, node.scratch.bytes, "the scratch"));
  for (ValueId result : node.results) {
    if (!result.valid() || scope.root[result.index()] != result || scope.entry[result.index()] >= 0)
      continue;
    const Value& value = scope.value(result);
    if (value.uses.empty() && !in_outputs[result.index()]) continue;
    const int64_t bytes = storage_of(scope, result) * base::byte_size(value.type.dtype);
    DC_RETURN_IF_ERROR(
        verify_place(scope, node, scope.graph.storage(result).location, bytes, "%" + *value.name));
  }
  return {};
}

}  // namespace

Status verify_stage(const Scope& scope) {
  std::vector<int> updates(static_cast<size_t>(scope.trainable));
  std::vector<bool> in_outputs(scope.graph.value_capacity());
  for (const Output& output : scope.graph.outputs) in_outputs[output.value.index()] = true;
  for (NodeId id : scope.order) {
    const Node& node = scope.graph.node(id);
    DC_RETURN_IF_ERROR(verify_leftovers(scope, node));
    if (scope.stage >= Stage::Sharded) DC_RETURN_IF_ERROR(verify_update(scope, node, updates));
    const bool known_stream =
        node.stream >= 0 && static_cast<size_t>(node.stream) < scope.step.streams.size();
    if (scope.stage >= Stage::Scheduled && !known_stream) {
      return offence(scope, node, "DC2310",
                     "stream " + std::to_string(node.stream) + " does not exist");
    }
    if (scope.stage == Stage::Allocated)
      DC_RETURN_IF_ERROR(verify_locations(scope, node, in_outputs));
  }
  if (scope.stage < Stage::Sharded) return verify_gradients(scope);
  DC_RETURN_IF_ERROR(verify_decisions(scope));
  return verify_update_counts(scope, updates);
}

}  // namespace dc::ir
