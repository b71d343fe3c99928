// fuse-elementwise: one kernel in place of each group of element-wise operators and reductions of
// their values. It gives their bits, since every operation rounds as its kernel does; it saves what
// they would write only for one another to read, in time and in memory.
#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "src/base/text.h"
#include "src/ir/effects.h"
#include "src/passes/fuse/elementwise_groups.h"
#include "src/passes/fuse/further_results.h"
#include "src/passes/fuse/fused_kernel.h"
#include "src/passes/fuse/fusible_reduction.h"
#include "src/passes/fuse/make_again.h"
#include "src/passes/fuse/move_to_operands.h"
#include "src/passes/fuse/push_slices.h"
#include "src/passes/fuse/sibling_groups.h"
#include "src/passes/fuse/value_readers.h"
#include "src/passes/fuse/write_as_read.h"
#include "src/passes/pass.h"

namespace dc::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

bool is_known(const cost::Estimate& estimate) {
  return estimate.source == cost::Source::Measured || estimate.source == cost::Source::Learned;
}

// By a profile that has some of the members. It has the groups of a model as they are without one;
// what it has neither measured nor fused kernels enough to learn from, as a group that another
// one's rejection made, is left apart. Members that it lacks, as operators on slices, are
// estimated. `more`: by how much of that time it may be slower.
bool is_slower(const Graph& graph, const Node& fused, const ElementwiseGroup& group, double more,
               const cost::CostModel& cost) {
  base::Nanos apart;
  bool is_measured = false;
  for (const NodeId member : group.members) {
    const cost::Estimate one = cost.compute(graph, graph.node(member));
    is_measured = is_measured || one.source == cost::Source::Measured;
    apart += one.time;
  }
  if (!is_measured) return false;
  const cost::Estimate together = cost.compute(graph, fused);
  const auto most = static_cast<double>(apart.v) * (1 + more);
  return !is_known(together) || static_cast<double>(together.time.v) > most;
}

bool folds_rows(const Graph& graph, const Node& node) {
  const std::optional<FusibleReduction> reduction = fusible_reduction(graph, node);
  return reduction && folds_trailing(reduction->dims, graph.value(reduction->value).type.shape);
}

// Whether a profile has measured that the group takes no longer than its operators, fused without
// its reductions too. On GPUs what folds columns takes less unless that was measured, since what it
// folds is not stored; few long rows would keep few threads busy.
bool reductions_pay(const Graph& graph, const Node& fused, const ElementwiseGroup& group,
                    const cost::CostModel& cost, base::DeviceKind device) {
  const bool unless_measured =
      device == base::DeviceKind::Cuda && std::ranges::none_of(group.members, [&](NodeId member) {
        return folds_rows(graph, graph.node(member));
      });
  base::Nanos apart, folding;
  std::vector<NodeId> operators;
  std::vector<ValueId> results;
  for (const NodeId member : group.members) {
    const Node& node = graph.node(member);
    const cost::Estimate one = cost.compute(graph, node);
    if (one.source != cost::Source::Measured) return unless_measured;
    apart += one.time;
    if (fusible_reduction(graph, node)) {
      folding += one.time;
      continue;
    }
    operators.push_back(member);
    const auto is_operator = [&](NodeId reader) {
      return std::ranges::count(group.members, reader) != 0 &&
             !fusible_reduction(graph, graph.node(reader));
    };
    if (is_read_outside(graph, node.results[0], is_operator)) results.push_back(node.results[0]);
  }
  const cost::Estimate together = cost.compute(graph, fused);
  if (together.source != cost::Source::Measured) return unless_measured;
  if (operators.size() > 1) {
    const cost::Estimate without =
        cost.compute(fused_signature(graph, operators, std::move(results)));
    if (is_known(without)) apart = std::min(apart, without.time + folding);
  }
  return together.time <= apart;
}

// What the members of a group of rows take as other kernels: the reductions apart, and one kernel
// of the operators of one shape between reductions that read each other. Nothing if that is not
// known.
std::optional<base::Nanos> time_without_rows(const Graph& graph, const ElementwiseGroup& group,
                                             const cost::CostModel& cost) {
  base::Nanos apart;
  std::map<ValueId, int> level;  // of members' values: reductions one after the other before it
  std::map<std::pair<int, ir::Shape>, std::vector<NodeId>> parts;
  for (const NodeId member : group.members) {
    const Node& node = graph.node(member);
    const std::optional<FusibleReduction> reduction = fusible_reduction(graph, node);
    int own = 0;
    for (const ValueId operand : node.operands) {
      const auto read = level.find(viewed(graph, operand));
      if (read != level.end()) own = std::max(own, read->second);
    }
    const ValueId result = node.results[0];
    level[result] = own + (reduction ? 1 : 0);
    if (!reduction) {
      parts[{own, graph.value(result).type.shape}].push_back(member);
      continue;
    }
    const cost::Estimate one = cost.compute(graph, node);
    if (one.source != cost::Source::Measured) return std::nullopt;
    apart += one.time;
  }
  for (const auto& [key, members] : parts) {
    const cost::Estimate one =
        members.size() == 1
            ? cost.compute(graph, graph.node(members[0]))
            : cost.compute(fused_signature(graph, members, read_outside(graph, members)));
    if (!is_known(one)) return std::nullopt;
    apart += one.time;
  }
  return apart;
}

// Whether a kernel that reads rows again is faster. On GPUs it is, unless a profile has measured
// otherwise: what it does not move takes longer than what it computes twice.
bool rows_pay(const Graph& graph, const Node& fused, const ElementwiseGroup& group,
              const cost::CostModel& cost) {
  const cost::Estimate together = cost.compute(graph, fused);
  const std::optional<base::Nanos> apart = time_without_rows(graph, group, cost);
  return together.source != cost::Source::Measured || !apart || together.time <= *apart;
}

// Whether a profile knows that one kernel takes no longer than these apart, or knows none of them.
bool siblings_pay(const Graph& graph, const ElementwiseGroup& joined,
                  std::initializer_list<ElementwiseGroup> groups, const cost::CostModel& cost) {
  const auto kernel = [&](const ElementwiseGroup& group) {
    return cost.compute(fused_signature(graph, group.members, read_outside(graph, group.members)));
  };
  const cost::Estimate together = kernel(joined);
  base::Nanos apart;
  size_t known = 0;
  for (const ElementwiseGroup& group : groups) {
    const cost::Estimate one = kernel(group);
    apart += one.time;
    known += is_known(one) ? 1 : 0;
  }
  if (!is_known(together)) return known == 0;
  return known == groups.size() && together.time <= apart;
}

// Whether the group became one kernel. `again`: by node, whether it makes a value again. `more`:
// how much longer a kernel may take that does, as part of the time of its operators.
bool fuse(Graph& graph, const ElementwiseGroup& group, const std::vector<int>& position,
          const std::vector<bool>& again, double more, const cost::CostModel& cost,
          const passes::Options& options) {
  const FuseReductions joining = options.fuse_reductions;
  const NodeId last = group.members.back();
  const std::optional<FusedKernel> kernel = make_fused_kernel(graph, group.members);
  if (!kernel) return false;
  const bool saves_memory =
      std::ranges::any_of(group.members, [&](NodeId member) { return again[member.index()]; });
  const Node& fused = graph.node(kernel->node);
  const bool has_reason =
      joining == FuseReductions::Always || joining == FuseReductions::AtEnds ||
      (group.reads_rows       ? rows_pay(graph, fused, group, cost)
       : group.reductions > 0 ? reductions_pay(graph, fused, group, cost, options.device)
                              : true);
  if (!has_reason ||
      (!group.reads_rows && is_slower(graph, fused, group, saves_memory ? more : 0, cost))) {
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
  int64_t operators = 0, kernels = 0, reductions = 0, again = 0, bytes = 0;

  void add(const ElementwiseGroup& group) {
    operators += static_cast<int64_t>(group.members.size());
    reductions += static_cast<int64_t>(group.reductions);
    ++kernels;
  }
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

// Those of values of element-wise operators of their own phase, in program order.
std::vector<NodeId> fusible_reductions(const Graph& graph) {
  std::vector<NodeId> found;
  for (NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    const Node& node = graph.node(id);
    const std::optional<FusibleReduction> reduction = fusible_reduction(graph, node);
    if (!reduction) continue;
    const Node& maker = graph.node(graph.value(reduction->value).producer);
    if (is_fusible(graph, maker) && maker.origin.phase == node.origin.phase) found.push_back(id);
  }
  return found;
}

// What may join groups.
struct Joining {
  std::vector<NodeId> rows;      // reductions, which may be read there
  std::vector<NodeId> ends;      // reductions, of others
  bool further_results = false;  // make_further_results(), but not of these:
  std::set<ValueId> kept;
  bool operator==(const Joining&) const = default;
};

// How much longer than its operators a kernel may take that makes values again, so that they need
// not be kept; where least is to be kept, as long as kernels of their own would.
constexpr double kMore = 0.1, kMoreForLeast = 1;
// The argument from which on kernels give further results.
constexpr int64_t kGivesFurtherResults = 9;

// Returns what may join next: what is part of groups that became kernels, and what no group has.
// The operators of the other groups would be grouped otherwise without it, so the program has to be
// fused again.
Joining fuse_program(Graph& graph, int64_t most_operators, const Joining& joining,
                     const passes::Options& options, const cost::CostModel& cost, Counts& counts) {
  const auto elementwise = [&](const std::set<NodeId>& taken) {
    std::vector<ElementwiseGroup> found = elementwise_groups(graph, joining.ends, taken);
    if (const FuseReductions how = options.fuse_reductions; how != FuseReductions::Never) {
      join_siblings(graph, found, [&](const ElementwiseGroup& joined, const auto&... apart) {
        return how != FuseReductions::WhereFaster || siblings_pay(graph, joined, {apart...}, cost);
      });
    }
    return found;
  };
  std::vector<MadeAgain> again = make_again(graph, most_operators);
  std::vector<MadeAgain> further;
  if (joining.further_results)
    further = make_further_results(graph, again, elementwise({}), joining.kept);
  again.insert(again.end(), further.begin(), further.end());
  std::vector<ElementwiseGroup> groups;
  std::set<NodeId> may_wait;  // whatever the order
  if (!joining.rows.empty()) {
    may_wait = waiting(graph, joining.rows);
    groups = row_groups(graph, joining.rows, may_wait);
  }
  std::set<NodeId> taken;
  for (const ElementwiseGroup& group : groups) {
    let_wait(graph, group, may_wait);
    taken.insert(group.members.begin(), group.members.end());
  }
  std::ranges::move(elementwise(taken), std::back_inserter(groups));
  const std::vector<int> position = positions(graph);
  std::ranges::sort(groups, {}, [&](const ElementwiseGroup& group) {
    return position[group.members.back().index()];
  });
  std::vector<bool> is_again(graph.node_capacity());
  for (const MadeAgain& one : again) is_again[one.node.index()] = true;
  LateCopies copies(graph, again);
  const std::vector<NodeId> outside = copies.outside(groups);
  copies.take_back(outside);
  std::set<NodeId> refused_rows, refused(outside.begin(), outside.end());
  // The last group first: whether a copy stays is known before the kernel of what it stands for
  // leaves out what nothing else reads.
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
    if (fuse(graph, *group, position, is_again, joining.further_results ? kMoreForLeast : kMore,
             cost, options)) {
      counts.add(*group);
    } else {
      copies.take_back(group->members);
      (group->reads_rows ? refused_rows : refused)
          .insert(group->members.begin(), group->members.end());
    }
  }
  copies.count(counts);
  Joining next = joining;
  std::erase_if(next.rows, [&](NodeId reduction) { return refused_rows.contains(reduction); });
  std::erase_if(next.ends, [&](NodeId reduction) { return refused.contains(reduction); });
  for (const MadeAgain& one : further) {
    if (refused.contains(one.node) || refused_rows.contains(one.node))
      next.kept.insert(one.original);
  }
  return next;
}

void fuse_program(Graph& graph, int64_t most_operators, const passes::Options& options,
                  const cost::CostModel& cost, Counts& counts) {
  move_to_operands(graph);
  const FuseReductions how = options.fuse_reductions;
  const bool on_gpu = options.device == base::DeviceKind::Cuda;
  Joining joining;
  joining.further_results = most_operators >= kGivesFurtherResults;
  if (how != FuseReductions::Never) joining.ends = fusible_reductions(graph);
  if (how == FuseReductions::Always || (how == FuseReductions::WhereFaster && on_gpu))
    joining.rows = joining.ends;
  if (how == FuseReductions::WhereFaster) {
    std::erase_if(joining.ends, [&](NodeId reduction) {
      const Node& node = graph.node(reduction);
      return (!on_gpu || folds_rows(graph, node)) &&
             cost.compute(graph, node).source != cost::Source::Measured;
    });
  }
  constexpr int kMostTries = 8;  // then nothing joins
  for (int tries = 0; tries < kMostTries && joining != Joining(); ++tries) {
    Graph fused = graph;
    Counts with_it = counts;
    Joining next = fuse_program(fused, most_operators, joining, options, cost, with_it);
    if (next == joining) {
      if (with_it.kernels > counts.kernels) graph = std::move(fused);
      counts = with_it;
      return;
    }
    joining = std::move(next);
  }
  fuse_program(graph, most_operators, {}, options, cost, counts);
}

// With slices pushed to operands, if all that this makes becomes part of kernels: apart it would be
// several kernels in place of one. Whether it is so.
bool fuse_with_pushed_slices(Graph& graph, int64_t most_operators, const passes::Options& options,
                             const cost::CostModel& cost, Counts& counts) {
  Graph pushed = graph;
  const std::vector<NodeId> made = push_slices(pushed);
  if (made.empty()) return false;
  Counts with_it = counts;
  fuse_program(pushed, most_operators, options, cost, with_it);
  if (std::ranges::any_of(made, [&](NodeId id) { return pushed.contains(id); })) return false;
  graph = std::move(pushed);
  counts = with_it;
  return true;
}

}  // namespace

base::Result<Change> fuse_elementwise(ir::Step& step, const PassContext& context) {
  Counts counts;
  const int64_t most_operators = context.argument.value_or(1);
  for (ir::Program& program : step.programs) {
    write_as_read(program.graph);
    if (!fuse_with_pushed_slices(program.graph, most_operators, context.options, context.cost,
                                 counts))
      fuse_program(program.graph, most_operators, context.options, context.cost, counts);
  }
  if (counts.kernels == 0) return Change::No;
  base::Remark remark{"fuse-elementwise",
                      "operators-fused",
                      {},
                      {{"operators", counts.operators}, {"kernels", counts.kernels}},
                      std::to_string(counts.operators - counts.reductions) +
                          " element-wise operators became " + std::to_string(counts.kernels) +
                          " kernels"};
  if (counts.reductions > 0) {
    remark.numbers.push_back({"reductions", counts.reductions});
    remark.text += " with " + std::to_string(counts.reductions) + " reductions";
  }
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
