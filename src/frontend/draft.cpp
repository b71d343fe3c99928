#include "src/frontend/draft.h"

#include <algorithm>

#include "src/frontend/arguments.h"
#include "src/ir/builder.h"

namespace dc::frontend {

using base::Result;
using base::Status;

std::string module_of(const std::string& fqn) {
  const size_t dot = fqn.rfind('.');
  return dot == std::string::npos ? "" : fqn.substr(0, dot);
}

Draft::Draft(RawModel raw, const BuildContext& build_context)
    : model(std::move(raw)), context(build_context), graph("step"), values_(model.names.size()) {
  step.name = "step";
}

Result<ir::TensorType> Draft::type_of(Name name) const {
  const auto found = model.tensors.find(name);
  if (found == model.tensors.end()) return malformed("the type of " + text(name) + " is missing");
  const RawTensor& raw = found->second;
  const std::optional<base::DType> dtype = base::dtype_from_export(raw.dtype);
  if (!dtype) return malformed(text(name) + " has an unknown element type");
  ir::TensorType type;
  type.dtype = *dtype;
  type.shape = raw.shape;
  type.strides = raw.strides;
  type.offset = raw.offset;
  return type;
}

Status Draft::define(Name name, ir::ValueId value, Placement placement) {
  if (value_of(name).valid()) return malformed(text(name) + " is defined twice");
  values_[static_cast<size_t>(name)] = value;
  placements_.resize(std::max(placements_.size(), value.index() + 1));
  placements_[value.index()] = placement;
  return base::ok_status();
}

ir::ValueId Draft::as_declared(Name name) {
  const ir::ValueId value = value_of(name);
  const auto found = declared_.find(name);
  if (found == declared_.end()) return value;
  auto& [dtype, converted] = found->second;
  if (converted.valid()) return converted;
  ir::TensorType type = graph.value(value).type;
  type.dtype = dtype;
  const ir::NodeId producer = graph.value(value).producer;
  const ir::Origin origin = graph.node(producer).origin;
  const bool marked = std::find(unmarked.begin(), unmarked.end(), producer) == unmarked.end();
  converted =
      ir::Builder(graph, {}, origin)
          .make_aten("aten._to_copy.default", {value}, {text(name) + "_declared", std::move(type)},
                     {{"self", ir::OperandRef{0}}, {"dtype", dtype, true}});
  if (!marked) unmarked.push_back(graph.value(converted).producer);
  placements_.resize(std::max(placements_.size(), converted.index() + 1));
  placements_[converted.index()] = placements_[value.index()];
  return converted;
}

}  // namespace dc::frontend
