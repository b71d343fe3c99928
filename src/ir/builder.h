// Builder: puts nodes at one place of a graph, all of one origin and on one stream.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/ir/graph.h"

namespace dc::ir {

class Builder {
 public:
  // Before `before`; an invalid id: at the end.
  explicit Builder(Graph& graph, NodeId before = {}, Origin origin = {}, int stream = 0)
      : graph_(&graph), before_(before), origin_(std::move(origin)), stream_(stream) {}

  Builder on(int stream) const { return Builder(*graph_, before_, origin_, stream); }
  Builder with(Origin origin) const {
    return Builder(*graph_, before_, std::move(origin), stream_);
  }

  // A node of an op without results.
  NodeId act(OpKind kind, ValueList operands, std::vector<Arg> args = {});
  // The result of an op that has one.
  ValueId make(OpKind kind, ValueList operands, NewValue result, std::vector<Arg> args = {});
  ValueId make_aten(Overload overload, ValueList operands, NewValue result, std::vector<Arg> args);
  // The results of an op that has several.
  std::vector<ValueId> make_all(OpKind kind, ValueList operands, std::vector<NewValue> results,
                                std::vector<Arg> args = {});
  // The same elements as `dtype`, under `name`.
  ValueId cast(ValueId value, DType dtype, std::string name);
  // Adds to the bytes of operand 0, whose type the result has.
  ValueId make_in_place(OpKind kind, ValueList operands, std::string name,
                        std::vector<Arg> args = {});
  // The done of what a start made: on the compute stream, whatever this builder's is.
  ValueId wait(ValueId started, std::string name);

  // `node` again on other operands: its op, arguments and stream, its results with `prefix` before
  // their names.
  Node& repeat(const Node& node, ValueList operands, const std::string& prefix = "");

 private:
  Node& insert(OpKind kind, ValueList operands, std::vector<NewValue> results,
               std::vector<Arg> args);

  Graph* graph_;
  NodeId before_;
  Origin origin_;
  int stream_;
};

}  // namespace dc::ir
