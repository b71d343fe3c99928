// The step while build_step() makes it of a RawModel: what inputs, nodes and outputs share.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/frontend/build.h"
#include "src/frontend/result_types.h"

namespace dc::frontend {

// "model.layers.0.mlp.weight" -> "model.layers.0.mlp".
std::string module_of(const std::string& fqn);

struct Draft {
  Draft(RawModel raw, const BuildContext& build_context);

  RawModel model;
  const BuildContext& context;
  ir::Step step;
  ir::Graph graph;
  std::map<std::string, ir::ValueId> parameters;  // by canonical name
  std::vector<ir::NodeId> unmarked;               // nodes whose phase the archive does not say

  const std::string& text(Name name) const { return model.names.text(name); }

  // The type that the archive records; an error if it has none or one that is not supported.
  base::Result<ir::TensorType> type_of(Name name) const;

  // The value of a name as its kernel gives it; invalid before define().
  ir::ValueId value_of(Name name) const { return values_[static_cast<size_t>(name)]; }
  base::Status define(Name name, ir::ValueId value, Placement placement);
  Operand operand(ir::ValueId value) const {
    return {graph.value(value).type, placements_[value.index()]};
  }

  // The archive gives the value of this name another element type than its kernel does.
  void declare(Name name, base::DType dtype) { declared_[name] = {dtype, {}}; }
  // A value in the element type that the archive gives it: converted where the kernel's is another.
  ir::ValueId as_declared(Name name);

 private:
  std::vector<ir::ValueId> values_;    // by Name
  std::vector<Placement> placements_;  // by value
  // By name: the archive's element type and, once a node reads it so, the converted value.
  std::map<Name, std::pair<base::DType, ir::ValueId>> declared_;
};

// Parameters, buffers, constants and inputs, in the order of the signature; tied names are joined.
base::Status add_inputs(Draft& draft);
// Operators, in the order of the archive.
base::Status add_nodes(Draft& draft);
// The loss, gradients and updates of buffers.
base::Status add_outputs(Draft& draft);
// Phase and module of the nodes that the exporter did not mark.
void complete_origins(Draft& draft);

}  // namespace dc::frontend
