// Structure of a program: ids, use lists, one producer, operands before uses, known overloads,
// outputs.
#include <string_view>
#include <unordered_set>

#include "src/base/text.h"
#include "src/ir/verifier.h"

namespace dc::ir {
namespace {

using base::Status;

Status verify_links(Scope& scope) {
  const Graph& graph = scope.graph;
  scope.position.assign(graph.node_capacity(), -1);
  NodeId previous;
  for (NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    const bool known = graph.contains(id) && graph.node(id).id == id;
    if (!known || scope.position[id.index()] != -1 || graph.previous(id) != previous) {
      return table_offence(scope.step, scope.stage, "DC2101",
                           "program @" + graph.name() + " has a broken chain of nodes");
    }
    scope.position[id.index()] = static_cast<int>(scope.order.size());
    scope.order.push_back(id);
    previous = id;
  }
  if (graph.last() != previous || scope.order.size() != graph.node_count()) {
    return table_offence(scope.step, scope.stage, "DC2101",
                         "program @" + graph.name() + " has nodes outside its chain");
  }
  return {};
}

// How often each operand of each node is listed among the uses of the value it reads. A node's
// operands start at `first`.
struct ListedUses {
  std::vector<size_t> first;  // by node
  std::vector<int> times;

  explicit ListedUses(const Scope& scope) : first(scope.graph.node_capacity()) {
    const Graph& graph = scope.graph;
    size_t count = 0;
    for (NodeId id : scope.order) {
      first[id.index()] = count;
      count += graph.node(id).operands.size();
    }
    times.assign(count, 0);
    for (NodeId id : scope.order) {
      for (ValueId result : graph.node(id).results) {
        if (!result.valid() || result.index() >= graph.value_capacity()) continue;
        for (const Use& use : graph.value(result).uses) {
          if (is_real(graph, use, result))
            ++times[first[use.node.index()] + static_cast<size_t>(use.operand)];
        }
      }
    }
  }

  static bool is_real(const Graph& graph, const Use& use, ValueId value) {
    return graph.contains(use.node) && use.operand >= 0 &&
           static_cast<size_t>(use.operand) < graph.node(use.node).operands.size() &&
           graph.node(use.node).operands[static_cast<size_t>(use.operand)] == value;
  }
};

Status verify_operands(const Scope& scope, const ListedUses& listed, const Node& node) {
  const Graph& graph = scope.graph;
  for (size_t i = 0; i < node.operands.size(); ++i) {
    const ValueId id = node.operands[i];
    const auto bad = [&](std::string_view code, const std::string& what) {
      return offence(scope, node, code, "operand " + std::to_string(i) + what);
    };
    if (!id.valid() || id.index() >= graph.value_capacity()) return bad("DC2102", " is no value");
    const Value& value = graph.value(id);
    if (!graph.contains(value.producer)) return bad("DC2102", " was produced by an erased node");
    if (scope.position[value.producer.index()] >= scope.position[node.id.index()])
      return bad("DC2102", " (%" + *value.name + ") is used before it is defined");
    const int found = listed.times[listed.first[node.id.index()] + i];
    if (found != 1) {
      return bad("DC2103", " is listed " + std::to_string(found) + " times among the uses of %" +
                               *value.name);
    }
  }
  return {};
}

Status verify_results(const Scope& scope, const Node& node) {
  const Graph& graph = scope.graph;
  for (size_t i = 0; i < node.results.size(); ++i) {
    const ValueId id = node.results[i];
    if (!id.valid()) continue;
    if (id.index() >= graph.value_capacity())
      return offence(scope, node, "DC2104", "a result is no value");
    const Value& value = graph.value(id);
    if (value.id != id || value.producer != node.id || value.result != static_cast<int>(i)) {
      return offence(scope, node, "DC2104",
                     "%" + *value.name + " does not name this node as its producer");
    }
    for (const Use& use : value.uses) {
      if (!ListedUses::is_real(graph, use, id))
        return offence(scope, node, "DC2103", "%" + *value.name + " lists a use that is none");
    }
  }
  return {};
}

Status verify_arg_refs(const Scope& scope, const Node& node) {
  const auto in_range = [&](int index, int least) {
    return index >= least && index < static_cast<int>(node.operands.size());
  };
  for (const Arg& arg : node.args) {
    bool good = true;
    if (const auto* ref = std::get_if<OperandRef>(&arg.value)) good = in_range(ref->index, 0);
    if (const auto* list = std::get_if<OperandList>(&arg.value)) {
      for (int index : list->indices) good &= in_range(index, -1);
    }
    if (!good)
      return offence(
          scope, node, "DC2105",
          "argument '" + std::string(arg.label()) + "' names an operand that is not there");
  }
  return {};
}

Status unsupported(const Scope& scope, const Node& node, std::string_view code,
                   const std::string& why) {
  const Status status = offence(scope, node, code, why);
  return Status(base::ErrorKind::Unsupported, status.code(), status.sentence());
}

// What is read by position is there: the operands that the operator's schema demands, and its
// results, of which only one of several may be None.
Status verify_counts(const Scope& scope, const Node& node, const AtenInfo& aten) {
  const auto least = static_cast<uint8_t>(aten.operands);
  if (node.operands.size() < least) {
    return offence(scope, node, "DC2105",
                   "this operator reads at least " + base::count_of(least, "tensor") +
                       ", the node " + std::to_string(node.operands.size()));
  }
  if (aten.results == kManyResults) return {};
  const auto results = static_cast<uint8_t>(aten.results);
  if (node.results.size() != results) {
    return offence(scope, node, "DC2105",
                   "this operator gives " + base::count_of(results, "result") + ", the node " +
                       std::to_string(node.results.size()));
  }
  const bool missing = results == 1 && !node.results[0].valid();
  return missing ? offence(scope, node, "DC2105", "the result is missing") : Status();
}

// The result of an identity gives way to its operand, so both are the same tensor.
Status verify_identity(const Scope& scope, const Node& node, const AtenInfo& aten) {
  if (aten.cls != AtenClass::Identity || node.results.empty()) return {};
  const TensorType& from = scope.operand(node, 0).type;
  const TensorType& to = scope.graph.value(node.results[0]).type;
  if (from.dtype == to.dtype && from.shape == to.shape) return {};
  return offence(scope, node, "DC2105",
                 "the result has another element type or other sizes than the operand, which this "
                 "operator hands on");
}

Status verify_overload(const Scope& scope, const Node& node) {
  if (node.kind != OpKind::Aten) return {};
  const AtenInfo* aten = node.overload.info();
  if (!aten) {
    return unsupported(
        scope, node, "DC2107",
        "operator " + node.overload.text() + " is not supported; rewrite the module without it");
  }
  if (aten->mutates) {
    return unsupported(scope, node, "DC2108",
                       node.overload.text() + " writes its argument; export a functional graph");
  }
  bool dynamic = aten->data_dependent;
  if (node.overload == "aten.index.Tensor") {
    for (size_t i = 1; i < node.operands.size(); ++i) {
      dynamic |= scope.operand(node, i).type.dtype == DType::Bool;
    }
  }
  if (dynamic) {
    return unsupported(scope, node, "DC2109",
                       "the result of " + node.overload.text() +
                           " depends on data in its shape; use a formulation with static shapes");
  }
  DC_RETURN_IF_ERROR(verify_counts(scope, node, *aten));
  return verify_identity(scope, node, *aten);
}

Status verify_outputs(const Scope& scope) {
  const Graph& graph = scope.graph;
  std::unordered_set<std::string> seen;
  std::unordered_set<std::string_view> parameters, buffers;
  for (const Parameter& parameter : scope.step.parameters) parameters.insert(parameter.fqn);
  for (const Buffer& buffer : scope.step.buffers) buffers.insert(buffer.fqn);
  for (const Output& output : graph.outputs) {
    const bool known = output.value.valid() && output.value.index() < graph.value_capacity() &&
                       graph.contains(graph.value(output.value).producer);
    const std::string what = output.kind == OutputKind::Loss ? "the loss" : "'" + output.fqn + "'";
    const std::string where = "program @" + graph.name() + ": the output for " + what;
    if (!known) return table_offence(scope.step, scope.stage, "DC2106", where + " is no value");
    if (!seen.insert(std::to_string(static_cast<int>(output.kind)) + output.fqn).second) {
      return table_offence(scope.step, scope.stage, "DC2106", where + " stands twice");
    }
    const bool named = output.kind == OutputKind::Loss ||
                       (output.kind == OutputKind::Gradient && parameters.contains(output.fqn)) ||
                       (output.kind == OutputKind::BufferUpdate && buffers.contains(output.fqn));
    if (!named)
      return table_offence(scope.step, scope.stage, "DC2106",
                           where + " has no such row in the tables");
  }
  return {};
}

}  // namespace

Status verify_structure(Scope& scope) {
  DC_RETURN_IF_ERROR(verify_links(scope));
  const ListedUses listed(scope);
  std::unordered_set<std::string_view> names;
  names.reserve(scope.graph.value_capacity());
  for (NodeId id : scope.order) {
    const Node& node = scope.graph.node(id);
    DC_RETURN_IF_ERROR(verify_operands(scope, listed, node));
    DC_RETURN_IF_ERROR(verify_results(scope, node));
    DC_RETURN_IF_ERROR(verify_arg_refs(scope, node));
    DC_RETURN_IF_ERROR(verify_overload(scope, node));
    for (ValueId result : node.results) {
      if (!result.valid() || names.insert(*scope.value(result).name).second) continue;
      return offence(scope, node, "DC2104",
                     "the name %" + *scope.value(result).name + " stands for two values");
    }
  }
  return verify_outputs(scope);
}

}  // namespace dc::ir
