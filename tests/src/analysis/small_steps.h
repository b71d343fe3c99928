// Small steps for tests of analyses, layout and emission, built by hand.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/ir/step.h"

namespace dc::ir {

// Builds one program of a step, a node per call, at the end of the graph.
class StepBuilder {
 public:
  explicit StepBuilder(int world) {
    step.name = "small";
    step.stage = Stage::Scheduled;
    step.mesh.axes = {{"dp", world}};
    step.streams = {"compute", "comm"};
    step.programs.push_back({Graph("step"), 1});
  }

  Graph& graph() { return step.programs.back().graph; }

  int entry(const std::string& name, StateRole role, TensorType type, int range_of = -1,
            int64_t storage = 0) {
    StateEntry entry;
    entry.name = name;
    entry.role = role;
    entry.storage_elements = storage > 0 ? storage : type.numel();
    entry.type = std::move(type);
    entry.range_of = range_of;
    step.state.push_back(std::move(entry));
    return static_cast<int>(step.state.size()) - 1;
  }
  ValueId state(int entry) {
    const StateEntry& found = step.state[static_cast<size_t>(entry)];
    return op(OpKind::State, {}, {{found.name, found.type}}, {{Attr::Entry, StateId{entry}}});
  }
  ValueId input(const std::string& name, TensorType type) {
    InputSpec spec;
    spec.name = name;
    spec.type = type;
    step.inputs.push_back(spec);
    return op(OpKind::Input, {}, {{name, type}}, {{Attr::Name, name}});
  }
  // First result, or an invalid id.
  ValueId op(OpKind kind, const std::vector<ValueId>& operands, std::vector<NewValue> results,
             std::vector<Arg> args = {}) {
    Node& node = graph().insert({}, kind, operands, std::move(results), std::move(args), origin);
    return node.results.empty() ? ValueId{} : node.results[0];
  }
  ValueId aten(const std::string& overload, const std::vector<ValueId>& operands, NewValue result) {
    std::vector<Arg> args;
    for (size_t i = 0; i < operands.size(); ++i)
      args.push_back({"arg" + std::to_string(i), OperandRef{static_cast<int>(i)}});
    return graph()
        .insert_aten({}, overload, operands, {std::move(result)}, std::move(args), origin)
        .results[0];
  }
  // start and done on stream 1; returns done's result.
  ValueId collective(OpKind start, OpKind done, const std::vector<ValueId>& operands,
                     const std::string& name, TensorType type, int64_t elements, int64_t shard) {
    Node& node = graph().insert({}, start, operands, {{name + ".start", type}},
                                {{Attr::Elements, elements}, {Attr::Shard, shard}}, origin);
    node.stream = 1;
    ValueId started = node.results[0];
    return op(done, {started}, {{name, type}});
  }
  int32_t position(ValueId value) {
    int32_t position = 0;
    for (NodeId id : graph().order()) {
      if (id == graph().value(value).producer) return position;
      ++position;
    }
    return -1;
  }

  Step step;
  Origin origin;
};

inline TensorType f32(Shape shape) { return contiguous(DType::F32, std::move(shape)); }

}  // namespace dc::ir
