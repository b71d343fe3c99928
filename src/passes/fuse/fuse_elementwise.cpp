// fuse-elementwise: one kernel in place of each group of element-wise operators. It gives their
// bits, since every operation rounds as its kernel does; it saves what they would write only for
// one another to read, in time and in memory.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "src/base/text.h"
#include "src/ir/effects.h"
#include "src/passes/fuse/elementwise_groups.h"
#include "src/passes/fuse/fused_kernel.h"
#include "src/passes/fuse/make_again.h"
#include "src/passes/pass.h"

namespace dc::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

// Views of the value that come before `place`, in an order in which each follows what it is of.
void collect_views(const Graph& graph, ValueId value, const std::vector<int>& position, int place,
                   std::vector<NodeId>& views) {
  for (const ir::Use& use : graph.value(value).uses) {
    const Node& reader = graph.node(use.node);
    if (!ir::is_plain_view(reader) || position[use.node.index()] > place) continue;
    views.push_back(use.node);
    for (const ValueId seen : reader.results) {
      if (seen.valid()) collect_views(graph, seen, position, place, views);
    }
  }
}

// By a profile. It has the groups of a model as they are without one; what it has neither measured
// nor fused kernels enough to learn from, as a group that another one's rejection made, is left
// apart. `saves_memory`: it may take a tenth
// longer.
bool is_slower(const Graph& graph, const Node& fused, const ElementwiseGroup& group,
               bool saves_memory, const cost::CostModel& cost) {
  base::Nanos apart;
  for (const NodeId member : group.members) {
    const cost::Estimate one = cost.compute(graph, graph.node(member));
    if (one.source != cost::Source::Measured) return false;
    apart += one.time;
  }
  const cost::Estimate together = cost.compute(graph, fused);
  const bool is_known =
      together.source == cost::Source::Measured || together.source == cost::Source::Learned;
  return !is_known || together.time.v > apart.v + (saves_memory ? apart.v / 10 : 0);
}

// Whether the group became one kernel. `again`: by node, whether it makes a value again.
bool fuse(Graph& graph, const ElementwiseGroup& group, const std::vector<int>& position,
          const std::vector<bool>& again, const cost::CostModel& cost) {
  const NodeId last = group.members.back();
  const std::optional<FusedKernel> kernel = make_fused_kernel(graph, group.members);
  if (!kernel) return false;
  const bool saves_memory =
      std::ranges::any_of(group.members, [&](NodeId member) { return again[member.index()]; });
  if (is_slower(graph, graph.node(kernel->node), group, saves_memory, cost)) {
    graph.erase(kernel->node);
    return false;
  }
  std::vector<NodeId> views;
  for (const ValueId result : kernel->results)
    collect_views(graph, result, position, position[last.index()], views);
  for (const NodeId view : views) graph.move_before(view, last);
  take_the_place(graph, *kernel, group.members);
  return true;
}

struct Counts {
  int64_t operators = 0, kernels = 0, again = 0, bytes = 0;
};

// Operators that were made again in the backward phase and are part of no kernel would be stored,
// as what they stand for is now.
class LateCopies {
 public:
  LateCopies(Graph& graph, std::span<const MadeAgain> again) : graph_(graph) {
    for (const MadeAgain& one : again) {
      if (one.is_late) by_node_[one.node] = one;
    }
  }
  // Of these nodes, each of which follows what it reads.
  void take_back(std::span<const NodeId> nodes) {
    for (const NodeId node : nodes) {
      const auto found = by_node_.find(node);
      if (found != by_node_.end() && keep_original(graph_, found->second)) by_node_.erase(found);
    }
  }
  std::vector<NodeId> outside(std::span<const ElementwiseGroup> groups) const {
    std::set<NodeId> grouped;
    for (const ElementwiseGroup& group : groups)
      grouped.insert(group.members.begin(), group.members.end());
    std::vector<NodeId> found;
    for (const auto& [node, copy] : by_node_) {
      if (!grouped.contains(node)) found.push_back(node);
    }
    return found;
  }
  void count(Counts& counts) const {
    for (const auto& [node, copy] : by_node_) {
      counts.again += copy.bytes_not_kept > 0 ? 1 : 0;
      counts.bytes += copy.bytes_not_kept;
    }
  }

 private:
  Graph& graph_;
  std::map<NodeId, MadeAgain> by_node_;  // made in the order in which they follow each other
};

void fuse_program(Graph& graph, int64_t most_operators, const cost::CostModel& cost,
                  Counts& counts) {
  const std::vector<MadeAgain> again = make_again(graph, most_operators);
  std::vector<ElementwiseGroup> groups = elementwise_groups(graph);
  std::vector<int> position(graph.node_capacity());
  int next = 0;
  for (NodeId id = graph.first(); id.valid(); id = graph.next(id)) position[id.index()] = next++;
  std::vector<bool> is_again(graph.node_capacity());
  for (const MadeAgain& one : again) is_again[one.node.index()] = true;
  LateCopies copies(graph, again);
  copies.take_back(copies.outside(groups));
  // The last group first: whether a copy stays is known before the kernel of what it stands for
  // leaves out what nothing else reads.
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
    if (fuse(graph, *group, position, is_again, cost)) {
      counts.operators += static_cast<int64_t>(group->members.size());
      ++counts.kernels;
    } else {
      copies.take_back(group->members);
    }
  }
  copies.count(counts);
}

}  // namespace

base::Result<Change> fuse_elementwise(ir::Step& step, const PassContext& context) {
  Counts counts;
  for (ir::Program& program : step.programs)
    fuse_program(program.graph, context.argument.value_or(1), context.cost, counts);
  if (counts.kernels == 0) return Change::No;
  base::Remark remark{"fuse-elementwise",
                      "operators-fused",
                      {},
                      {{"operators", counts.operators}, {"kernels", counts.kernels}},
                      std::to_string(counts.operators) + " element-wise operators became " +
                          std::to_string(counts.kernels) + " kernels"};
  if (counts.again > 0) {
    remark.numbers.push_back({"made_again", counts.again});
    remark.numbers.push_back({"bytes", counts.bytes});
    remark.text += "; " + std::to_string(counts.again) +
                   " values are made again in the backward phase instead of keeping " +
                   base::format_bytes(counts.bytes);
  }
  context.remarks.push_back(std::move(remark));
  return Change::Yes;
}

}  // namespace dc::passes
