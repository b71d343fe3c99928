#include "src/bound/head.h"

#include <algorithm>
#include <vector>

#include "src/ir/effects.h"
#include "src/sim/simulate.h"

namespace dc::bound {
namespace {

using ir::Node;
using ir::NodeId;

constexpr size_t kMostTried = 8;

// Time of what compute does in forward and backward and does not read the parameter, whole or as
// what was made of it.
double independent(const ProgramView& program, const cost::CostModel& cost, int parameter) {
  const ir::Graph& graph = program.graph;
  std::vector<bool> depends(graph.node_capacity());
  double sum = 0;
  for (NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    const Node& node = graph.node(id);
    bool found = program.gathered(node) == parameter && node.kind == ir::OpKind::AllGatherStart;
    for (const ir::ValueId operand : node.operands)
      found = found || depends[graph.value(operand).producer.index()];
    depends[id.index()] = found;
    const bool counts = !found && ir::runs(node) && !ir::is_start(node.kind) &&
                        !ir::is_done(node.kind) && node.origin.phase != ir::Phase::Update;
    if (counts) sum += static_cast<double>(sim::node_time(program.step, graph, node, cost).v);
  }
  return sum;
}

}  // namespace

std::optional<Head> find_head(const ProgramView& first, const StepWork& work,
                              const cost::CostModel& cost) {
  std::vector<int> tried;
  std::optional<Head> best;
  double most = 0;
  for (NodeId id = first.graph.first(); id.valid() && tried.size() < kMostTried;
       id = first.graph.next(id)) {
    const Node& node = first.graph.node(id);
    const int parameter = node.kind == ir::OpKind::AllGatherStart ? first.gathered(node) : -1;
    if (parameter < 0 || std::find(tried.begin(), tried.end(), parameter) != tried.end()) continue;
    tried.push_back(parameter);
    const Head head{parameter, independent(first, cost, parameter)};
    const Work& gather = *work.gather[static_cast<size_t>(parameter)];
    const double gain = gather[Resource::Queue] - head.others_ns;
    if (gain <= most) continue;
    most = gain;
    best = head;
  }
  return best;
}

}  // namespace dc::bound
