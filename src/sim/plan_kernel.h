// A plan's kernel as a node of the IR, which is what cost models know.
#pragma once

#include "runtime/plan/plan.h"
#include "src/ir/graph.h"

namespace dc::sim {

// Holds one node per kernel, and values that stand for the plan's tensors. Not a program: nothing
// orders the nodes, and in-place results are values of their own.
class KernelNodes {
 public:
  explicit KernelNodes(const runtime::plan::Plan& plan);

  const ir::Graph& graph() const { return graph_; }
  // Null if the kernel's operator is unknown.
  const ir::Node* add(const runtime::plan::Instruction& kernel);

 private:
  ir::ValueId value(int64_t tensor);
  ir::Arg argument(const runtime::plan::Arg& arg, std::vector<ir::ValueId>& operands);

  const runtime::plan::Plan& plan_;
  ir::Graph graph_;
  std::vector<ir::ValueId> values_;  // by tensor
};

}  // namespace dc::sim
