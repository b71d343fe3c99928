#include "src/bound/program_memory.h"

#include <algorithm>

#include "src/ir/effects.h"

namespace dc::bound {

using ir::Node;
using ir::NodeId;
using ir::ValueId;

// Only kernels whose place among the others is certain.
std::vector<double> ProgramMemory::weights(const ProgramView& program) {
  const ir::Graph& graph = program.graph;
  std::vector<double> result(graph.node_capacity());
  for (NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    const Node& node = graph.node(id);
    if (!ProgramView::is_model_kernel(node)) continue;
    if (node.origin.phase == ir::Phase::Forward && !program.feeds_loss(id)) continue;
    auto bytes = static_cast<double>(program.scratch(node)) + 1;
    for (const ValueId root : program.touched(node))
      bytes += static_cast<double>(program.bytes(root));
    result[id.index()] = bytes;
  }
  return result;
}

ProgramMemory::ProgramMemory(const ProgramView& of, int32_t offset, int32_t most_instants)
    : program(of),
      spine(of.graph, weights(of), most_instants),
      offset_(offset),
      uses_(of.graph.value_capacity()),
      touches_(of.graph.value_capacity()) {
  const ir::Graph& graph = of.graph;
  for (NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    const Node& node = graph.node(id);
    if (!ir::runs(node)) continue;
    for (const ValueId operand : node.operands) {
      std::vector<NodeId>& list = uses_[of.root(operand).index()];
      if (list.empty() || list.back() != id) list.push_back(id);
    }
  }
  for (int32_t i = 0; i < spine.count(); ++i) {
    const Node& kernel = graph.node(spine.kernels()[static_cast<size_t>(i)]);
    if (kernel.origin.phase == ir::Phase::Forward) last_forward_ = i;
    std::vector<ValueId> roots;
    for (const ValueId operand : kernel.operands) roots.push_back(of.root(operand));
    for (const ValueId result : kernel.results) {
      if (result.valid()) roots.push_back(of.root(result));
    }
    for (const ValueId root : roots) {
      std::vector<int32_t>& list = touches_[root.index()];
      if (list.empty() || list.back() != begin() + i) list.push_back(begin() + i);
    }
  }
}

void ProgramMemory::charge(std::vector<Charge>& charges, int32_t first, int32_t last, ValueId root,
                           double bytes) const {
  const std::vector<int32_t>& touched = touches(root);
  for (auto at = std::lower_bound(touched.begin(), touched.end(), first); first <= last; ++at) {
    const int32_t stop = at == touched.end() ? last + 1 : std::min(*at, last + 1);
    if (first < stop) charges.push_back({first, stop - 1, bytes});
    if (at == touched.end()) return;
    first = std::max(first, *at + 1);
  }
}

}  // namespace dc::bound
