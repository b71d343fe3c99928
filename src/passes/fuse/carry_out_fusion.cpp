#include "src/passes/fuse/carry_out_fusion.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <utility>

#include "src/analysis/schedule_view.h"
#include "src/cost/transfer.h"
#include "src/ir/builder.h"
#include "src/ir/effects.h"
#include "src/passes/fuse/fused_kernel.h"
#include "src/sim/workload.h"

namespace dc::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

// Nodes that stand side by side.
using Unit = std::vector<NodeId>;

using Operands = std::map<NodeId, std::vector<ValueId>>;

// Gives the group the copies that it has for itself. Returns its nodes. `operands`: of all members
// of all groups, before any of them read from a copy.
Unit with_copies(Graph& graph, const std::vector<Fusions::Member>& group,
                 const Operands& operands) {
  Unit nodes;
  std::map<ValueId, ValueId> own;  // what a member reads instead
  for (const Fusions::Member& member : group) {
    std::vector<ValueId> read = operands.at(member.node);
    for (ValueId& operand : read) {
      if (const auto found = own.find(operand); found != own.end()) operand = found->second;
    }
    if (!member.is_copy) {
      for (size_t i = 0; i < read.size(); ++i)
        graph.set_operand(member.node, static_cast<int>(i), read[i]);
      nodes.push_back(member.node);
      continue;
    }
    const Node& original = graph.node(member.node);
    ir::Origin origin = original.origin;
    origin.accumulates = false;
    const Node& copy = ir::Builder(graph, graph.next(member.node), std::move(origin))
                           .repeat(original, read, "again.");
    own[graph.node(member.node).results[0]] = copy.results[0];
    nodes.push_back(copy.id);
  }
  return nodes;
}

// An order of all units that keeps dependences and as much of the program's order as they leave.
class Orderer {
 public:
  Orderer(const ir::Step& step, const Graph& graph, const cost::CostModel& cost,
          const std::vector<Unit>& together)
      : graph_(graph), view_(analysis::schedule_view(step, graph)) {
    unit_of_.assign(view_.order.size(), -1);
    for (const Unit& unit : together) {
      for (const NodeId id : unit) unit_of_[position(id)] = static_cast<int32_t>(units_.size());
      units_.push_back(unit);
    }
    for (size_t at = 0; at < view_.order.size(); ++at) {
      if (unit_of_[at] >= 0) continue;
      const bool joins = cost::joins(graph.node(view_.order[at]));
      if (!joins || at == 0) {
        unit_of_[at] = static_cast<int32_t>(units_.size());
        units_.push_back({view_.order[at]});
      } else {
        unit_of_[at] = unit_of_[at - 1];
        units_[static_cast<size_t>(unit_of_[at])].push_back(view_.order[at]);
      }
    }
    depend(step, cost);
  }

  // Empty if units wait for each other.
  std::vector<NodeId> run() {
    using Entry = std::pair<size_t, int32_t>;  // position of the last of the unit
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
    const auto add = [&](int32_t unit) {
      const Unit& nodes = units_[static_cast<size_t>(unit)];
      ready.emplace(position(nodes.back()), unit);
    };
    for (size_t i = 0; i < units_.size(); ++i) {
      if (waits_[i] == 0) add(static_cast<int32_t>(i));
    }
    std::vector<NodeId> order;
    while (!ready.empty()) {
      const auto unit = static_cast<size_t>(ready.top().second);
      ready.pop();
      order.insert(order.end(), units_[unit].begin(), units_[unit].end());
      for (const int32_t next : after_[unit]) {
        if (--waits_[static_cast<size_t>(next)] == 0) add(next);
      }
    }
    return order.size() == view_.order.size() ? order : std::vector<NodeId>();
  }

 private:
  size_t position(NodeId id) const { return static_cast<size_t>(view_.position[id.index()]); }

  void edge(size_t before, size_t after) {
    const int32_t first = unit_of_[before], second = unit_of_[after];
    if (first == second) return;
    after_[static_cast<size_t>(first)].push_back(second);
    ++waits_[static_cast<size_t>(second)];
  }

  // What reads follows what makes; for the rest, storages that are written again and releases, the
  // simulator knows which bytes a kernel touches and the end of a transfer is its done.
  void depend(const ir::Step& step, const cost::CostModel& cost) {
    after_.resize(units_.size());
    waits_.resize(units_.size());
    for (size_t at = 0; at < view_.order.size(); ++at) {
      for (const ValueId operand : graph_.node(view_.order[at]).operands)
        edge(position(graph_.value(operand).producer), at);
    }
    const sim::Workload workload = sim::workload_of(step, graph_, cost);
    const sim::Precedence needs = sim::precedence(workload);
    const std::vector<sim::Event>& events = workload.schedule.events;
    for (size_t event = 0; event < events.size(); ++event) {
      const size_t at = position(NodeId{events[event].origin});
      for (auto i = static_cast<size_t>(needs.first[event]);
           i < static_cast<size_t>(needs.first[event + 1]); ++i) {
        const NodeId before{events[static_cast<size_t>(needs.before[i])].origin};
        edge(position(before), at);
        if (ir::is_start(graph_.node(before).kind)) edges_from_dones(before, at);
      }
    }
  }

  void edges_from_dones(NodeId first, size_t at) {
    for (const NodeId start : cost::bucket_of(graph_, first)) {
      for (const ValueId started : graph_.node(start).results) {
        for (const ir::Use& use : graph_.value(started).uses) edge(position(use.node), at);
      }
    }
  }

  const Graph& graph_;
  const analysis::ScheduleView view_;
  std::vector<Unit> units_;
  std::vector<int32_t> unit_of_;  // by position
  std::vector<std::vector<int32_t>> after_;
  std::vector<int32_t> waits_;
};

// Nodes behind the last one of the forward phase that is in no unit: where a group of both phases
// runs says of which its kernel is.
std::set<int32_t> behind_forward(const Graph& graph, const std::vector<NodeId>& order,
                                 const std::vector<Unit>& units) {
  std::set<int32_t> fused, behind;
  for (const Unit& unit : units) {
    for (const NodeId id : unit) fused.insert(id.v);
  }
  for (const NodeId id : order) {
    const Node& node = graph.node(id);
    const bool is_forward = node.origin.phase == ir::Phase::Forward && ir::runs(node);
    if (is_forward && !fused.contains(id.v)) behind.clear();
    behind.insert(id.v);
  }
  return behind;
}

}  // namespace

Fusions fusions_of(const fusion::Draft& draft, const FusionProgram& of, const FusionProgram& like) {
  std::map<int32_t, NodeId> node_of;
  for (size_t i = 0; i < of.fusible.size(); ++i)
    node_of[of.fusible[i]] = like.kernels[static_cast<size_t>(like.fusible[i])];
  Fusions fusions;
  std::set<int32_t> placed;  // kernels that no group shows: the first that has one takes it
  for (size_t i = 0; i < draft.groups().size(); ++i) {
    const auto& group = draft.groups()[i];
    if (group == nullptr || group->members.size() < 2) continue;
    std::vector<Fusions::Member> members;
    for (const int32_t member : group->members) {
      const int32_t owner = draft.owner(member);
      const bool is_here =
          owner < 0 ? placed.insert(member).second : owner == static_cast<int32_t>(i);
      members.push_back({node_of.at(member), !is_here});
    }
    fusions.groups.push_back(std::move(members));
  }
  std::map<int32_t, std::vector<NodeId>> buckets;
  for (size_t i = 0; i < like.reductions.size(); ++i)
    buckets[draft.bucket(static_cast<int32_t>(i))].push_back(like.reductions[i]);
  for (auto& [number, starts] : buckets) {
    if (starts.size() > 1) fusions.buckets.push_back(std::move(starts));
  }
  return fusions;
}

bool are_alike(const Graph& a, const FusionProgram& of_a, const Graph& b,
               const FusionProgram& of_b) {
  const auto same = [&](int32_t one, int32_t other) {
    const Node &first = a.node(of_a.kernels[static_cast<size_t>(one)]),
               &second = b.node(of_b.kernels[static_cast<size_t>(other)]);
    return first.overload == second.overload && first.origin.phase == second.origin.phase &&
           a.value(first.results[0]).type.shape == b.value(second.results[0]).type.shape;
  };
  return std::ranges::equal(of_a.fusible, of_b.fusible, same);
}

base::Status carry_out(ir::Step& step, Graph& graph, const Fusions& fusions,
                       const cost::CostModel& cost) {
  Operands operands;
  for (const std::vector<Fusions::Member>& group : fusions.groups) {
    for (const Fusions::Member& member : group)
      operands[member.node] = graph.node(member.node).operands;
  }
  std::vector<Unit> units;
  for (const std::vector<Fusions::Member>& group : fusions.groups)
    units.push_back(with_copies(graph, group, operands));
  const size_t groups = units.size();
  units.insert(units.end(), fusions.buckets.begin(), fusions.buckets.end());
  const std::vector<NodeId> order = Orderer(step, graph, cost, units).run();
  if (order.empty())
    return base::Status(base::ErrorKind::Internal, "DC2614",
                        "kernels that were to be fused, or reductions, wait for each other");
  for (const NodeId id : order) graph.move_before(id, {});
  for (const Unit& bucket : fusions.buckets) {
    for (size_t i = 1; i < bucket.size(); ++i)
      graph.edit(bucket[i]).args.edit().push_back({ir::Attr::Joins, int64_t{1}});
  }
  const std::set<int32_t> late = behind_forward(graph, order, units);
  for (size_t i = 0; i < groups; ++i) {
    const ir::Origin first = graph.node(units[i].front()).origin;
    const bool is_late = late.contains(units[i].back().v);
    const std::optional<FusedKernel> kernel = make_fused_kernel(graph, units[i]);
    if (!kernel) continue;
    if (first.phase == ir::Phase::Forward && !is_late) graph.edit(kernel->node).origin = first;
    take_the_place(graph, *kernel, units[i]);
  }
  return {};
}

}  // namespace dc::passes
