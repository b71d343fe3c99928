// replicate-state: every rank keeps the whole optimizer state of the parameters whose gradients
// come first in the backward phase, as in ZeRO 0. Their gradients are reduced to all ranks while
// that phase goes on, so nothing of them has to be gathered between the norm and the next step,
// where compute would wait for it.
//
// As many as the link has time for: what the kernels of the backward phase take, less the
// reductions at that time. With hosts, the link inside a host: that is where shards are gathered.
// The sums keep their order, so all numbers stay. Only for parameters that are resident (ZeRO 1 and
// 2); the state takes more memory.
#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "src/analysis/liveness.h"
#include "src/base/text.h"
#include "src/ir/effects.h"
#include "src/passes/pass.h"
#include "src/schedule/state_values.h"

namespace dc::passes {
namespace {

using base::Bytes;
using base::Nanos;
using cost::Collective;

struct Gradient {
  int32_t position;  // where the backward phase makes it
  int parameter;
  Bytes bytes, sums;  // that travel: summands, and sums
};

// In the order in which they are made.
std::vector<Gradient> gradients_of(const ir::Step& step) {
  const ir::Graph& graph = step.programs.back().graph;
  std::vector<int32_t> position(graph.node_capacity());
  int32_t next = 0;
  for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id))
    position[id.index()] = next++;
  std::unordered_map<std::string_view, int> by_fqn;  // only looked up, never iterated
  for (const ir::Parameter& parameter : step.parameters)
    by_fqn.emplace(parameter.fqn, static_cast<int>(by_fqn.size()));
  std::vector<Gradient> found;
  for (const ir::Output& output : graph.outputs) {
    if (output.kind != ir::OutputKind::Gradient) continue;
    const ir::Value& value = graph.value(output.value);
    const int64_t element = base::byte_size(step.reduce_dtype.value_or(value.type.dtype));
    // An all_reduce counts by its summands. Across hosts the sums are gathered by themselves.
    const bool apart = !step.mesh.is_world(step.mesh.shard_axes());
    const int64_t sum = apart ? base::byte_size(ir::DType::F32) : element;
    found.push_back({position[value.producer.index()], by_fqn.at(output.fqn),
                     Bytes{value.type.numel() * element}, Bytes{value.type.numel() * sum}});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Gradient& a, const Gradient& b) { return a.position < b.position; });
  return found;
}

Nanos backward_compute(const ir::Step& step, const cost::CostModel& cost) {
  const ir::Graph& graph = step.programs.back().graph;
  Nanos time;
  for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    const ir::Node& node = graph.node(id);
    if (node.origin.phase == ir::Phase::Backward && ir::runs(node))
      time += cost.compute(graph, node).time;
  }
  return time;
}

// By parameter.
std::vector<bool> choose(const ir::Step& step, const cost::CostModel& cost) {
  const cost::Group holders = cost::group_on(step.mesh, step.mesh.shard_axes());
  const std::vector<Gradient> gradients = gradients_of(step);
  Nanos idle = backward_compute(step, cost);
  for (const Gradient& gradient : gradients)
    idle = idle - cost.collective(Collective::ReduceScatter, gradient.bytes, holders).time;
  std::vector<bool> chosen(step.parameters.size());
  for (const Gradient& gradient : gradients) {
    idle = idle - cost.collective(Collective::AllGather, gradient.sums, holders).time;
    if (idle < Nanos{}) break;
    chosen[static_cast<size_t>(gradient.parameter)] = true;
  }
  return chosen;
}

// Whole state for the chosen: no range of another entry, and moments of the parameter's shape.
ir::StateTable replicated(const ir::Step& step, const std::vector<bool>& chosen) {
  ir::StateTable table;
  std::vector<int> moved(step.state.size());
  for (size_t i = 0; i < step.state.size(); ++i) {
    ir::StateEntry entry = step.state[i];
    moved[i] = static_cast<int>(table.size());
    const bool is_chosen = entry.parameter >= 0 && chosen[static_cast<size_t>(entry.parameter)];
    if (is_chosen && entry.role == ir::StateRole::Shard) continue;
    const bool is_state =
        entry.role != ir::StateRole::Parameter && entry.role != ir::StateRole::Accumulator;
    if (is_chosen && is_state) {
      entry.type = ir::contiguous(entry.type.dtype,
                                  step.parameters[static_cast<size_t>(entry.parameter)].shape);
      entry.storage_elements = entry.type.numel();
    }
    if (entry.range_of >= 0) entry.range_of = moved[static_cast<size_t>(entry.range_of)];
    table.push_back(std::move(entry));
  }
  return table;
}

}  // namespace

base::Result<Change> replicate_state(ir::Step& step, const PassContext& context) {
  const bool applies =
      std::all_of(step.parameters.begin(), step.parameters.end(), [](const ir::Parameter& p) {
        return p.placement == ir::ParameterPlacement::Resident && p.shard > 0 &&
               (!p.trainable || p.state == ir::StatePlacement::Sharded);
      });
  if (!applies) return Change::No;
  const std::vector<bool> chosen = choose(step, context.cost);
  const auto count = std::count(chosen.begin(), chosen.end(), true);
  if (count == 0) return Change::No;
  step.state = replicated(step, chosen);
  int64_t bytes = 0;
  std::vector<base::RemarkSubject> subjects;
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (!chosen[i]) continue;
    subjects.push_back({base::SubjectKind::Parameter, static_cast<int32_t>(i)});
    step.parameters.edit()[i].state = ir::StatePlacement::Replicated;
    bytes += step.parameters[i].numel() * base::byte_size(step.parameters[i].dtype);
  }
  context.remarks.push_back(
      {"replicate-state",
       "state-replicated",
       std::move(subjects),
       {{"parameters", count}, {"trainable", schedule::trainable_count(step)}, {"bytes", bytes}},
       "the state of " + std::to_string(count) + " of " +
           std::to_string(schedule::trainable_count(step)) + " parameters, " +
           base::format_bytes(bytes) +
           ", is whole on every rank: their gradients reach all ranks in the backward phase"});
  return Change::Yes;
}

}  // namespace dc::passes
