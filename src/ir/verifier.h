// What the parts of the verifier share. Each part returns the first offence it finds in program
// order.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/base/expression.h"
#include "src/base/status.h"
#include "src/ir/effects.h"
#include "src/ir/step.h"

namespace dc::ir {

// One program under verification. `position` and `root` may be read once the structure is known to
// be sound.
struct Scope {
  const Step& step;
  const Graph& graph;
  Stage stage;
  bool is_first = false, is_last = false;  // the last program holds the update
  int64_t trainable = 0;                   // parameters
  std::vector<NodeId> order;
  std::vector<int> position;  // by node id; -1 if the node is not in the program
  std::vector<ValueId> root;  // by value id: the value that owns the storage
  std::vector<int> entry;     // by value id: state entry that owns the storage, -1 if none
  // What expressions of fused kernels say, by text: layers repeat few.
  mutable std::map<std::string_view, base::Result<base::Expression>> expressions{};

  const Value& value(ValueId id) const { return graph.value(id); }
  const TensorType& type(ValueId id) const { return graph.value(id).type; }
  const Value& operand(const Node& node, size_t index) const {
    return graph.value(node.operands[index]);
  }
};

// The space that a value's storage lies in.
Space space_of(const Scope& scope, ValueId value);
// Elements reserved for the value that owns a storage; a gathered value is padded to whole shards.
int64_t storage_of(const Scope& scope, ValueId root);
int64_t reserved_elements(const StateEntry& entry);         // at least what its type reaches
bool is_partial(const TensorType& type, const Mesh& mesh);  // on an axis of more than one rank
std::string describe(const Graph& graph, const Node& node);

base::Status offence(const Scope& scope, const Node& node, std::string_view code,
                     const std::string& sentence);
base::Status table_offence(const Step& step, Stage stage, std::string_view code,
                           const std::string& sentence);

base::Status verify_tables(const Step& step, Stage stage);
base::Status verify_structure(Scope& scope);  // fills order and position
base::Status verify_types(Scope& scope);      // fills root and entry
// Of the project's own ops.
base::Status verify_op_types(const Scope& scope, const Node& node);
base::Status verify_attributes(const Scope& scope, const Node& node);
base::Status verify_stage(const Scope& scope);     // rules of the stage, one program
base::Status verify_schedule(const Scope& scope);  // rules from Sharded on that need program order

}  // namespace dc::ir
