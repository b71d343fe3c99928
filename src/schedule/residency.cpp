#include "src/schedule/residency.h"

#include <algorithm>
#include <map>

#include "src/cost/transfer.h"
#include "src/ir/builder.h"
#include "src/schedule/gather_moves.h"
#include "src/schedule/state_values.h"
#include "src/sim/simulate.h"

namespace dc::schedule {
namespace {

using ir::NodeId;
using ir::OpKind;
using ir::ValueId;

Gather gather_at(const ir::Graph& graph, const ir::Node& start) {
  Gather gather;
  gather.start = start.id;
  gather.done = graph.value(start.results[0]).uses[0].node;
  const ir::Node& producer = graph.node(graph.value(start.operands[0]).producer);
  if (producer.kind == OpKind::Cast) gather.cast = producer.id;
  for (const ir::Use& use : graph.value(graph.node(gather.done).results[0]).uses) {
    if (graph.node(use.node).kind == OpKind::Release) gather.release = use.node;
  }
  return gather;
}

// Gathered in the forward phase, released in the backward phase.
bool kept_already(const ir::Graph& graph, const Gather& gather) {
  return graph.node(gather.start).origin.phase != graph.node(gather.release).origin.phase;
}

// The same gather into the carried entry; returns its value once done.
ValueId gather_into(ir::Graph& graph, const Gather& gather, ValueId carried) {
  const ir::Node& start = graph.node(gather.start);
  const ValueId started =
      ir::Builder(graph, start.id, start.origin, start.stream)
          .make_in_place(OpKind::AllGatherIntoStart, {carried, start.operands[0]},
                         graph.value(start.results[0]).name, start.args);
  const ValueId done = graph.node(gather.done).results[0];
  return ir::Builder(graph, gather.done, start.origin).wait(started, graph.value(done).name);
}

// Readers of the gather's value read `whole`; the gather goes, and its cast if no other node needs
// it.
void replace(ir::Graph& graph, const Gather& gather, ValueId whole) {
  graph.replace_all_uses(graph.node(gather.done).results[0], whole);
  graph.erase(gather.done);
  graph.erase(gather.start);
  if (gather.cast.valid() && graph.value(graph.node(gather.cast).results[0]).uses.empty())
    graph.erase(gather.cast);
}

}  // namespace

Residency::Residency(ir::Step& step, const cost::CostModel& cost) : step_(step), cost_(cost) {
  for (const ir::Program& program : step.programs) axes_.emplace_back(step, program.graph, cost);
  find_candidates();
}

void Residency::find_candidates() {
  std::map<int, ResidencyCandidate> by_entry;
  for (size_t p = 0; p < step_.programs.size(); ++p) {
    const ir::Graph& graph = step_.programs[p].graph;
    for (NodeId id : axes_[p].live.order) {
      const ir::Node& node = graph.node(id);
      if (node.kind == OpKind::AllGatherIntoStart && is_carried(p, node)) {
        if (p == 0) kept_bytes_ += whole_bytes(graph, node);
        continue;
      }
      if (node.kind != OpKind::AllGatherStart) continue;
      const int entry = shard_entry(p, node);
      if (entry < 0) continue;
      const Gather gather = gather_at(graph, node);
      if (!gather.release.valid()) continue;  // whole to the end as it is
      if (kept_already(graph, gather)) {
        kept_bytes_ += whole_bytes(graph, node);
        continue;
      }
      ResidencyCandidate& candidate = by_entry[entry];
      candidate.entry = entry;
      candidate.gathers.resize(step_.programs.size());
      candidate.gathers[p].push_back(gather);
      candidate.bytes = whole_bytes(graph, node);
      const auto transfer = cost::transfer_of(graph, node);
      candidate.time +=
          cost_.collective(transfer->kind, transfer->wire_bytes(), cost::group_of(step_, node))
              .time *
          step_.programs[p].repeat;
    }
  }
  for (auto& [entry, candidate] : by_entry) {
    int count = 0;
    for (size_t p = 0; p < candidate.gathers.size(); ++p) {
      count += static_cast<int>(candidate.gathers[p].size()) * step_.programs[p].repeat;
      // Several may be under way at once; the one that is done first is there for all uses.
      std::sort(candidate.gathers[p].begin(), candidate.gathers[p].end(),
                [&](const Gather& a, const Gather& b) {
                  return axes_[p].position(a.done) < axes_[p].position(b.done);
                });
    }
    if (count < 2) continue;
    candidate.saved = base::Nanos{candidate.time.v / count * (count - 1)};
    candidates_.push_back(std::move(candidate));
  }
}

// The state entry whose shard travels; -1 if it is none (sums of gradients, for example).
int Residency::shard_entry(size_t program, const ir::Node& start) const {
  const ir::Graph& graph = step_.programs[program].graph;
  const ir::Node& producer = graph.node(graph.value(start.operands[0]).producer);
  const ValueId source = producer.kind == OpKind::Cast ? producer.operands[0] : start.operands[0];
  const int entry = axes_[program].storages.entry(source);
  if (entry < 0 || step_.state[static_cast<size_t>(entry)].role != ir::StateRole::Shard) return -1;
  return entry;
}

bool Residency::is_carried(size_t program, const ir::Node& start) const {
  const int entry = axes_[program].storages.entry(start.operands[0]);
  return entry >= 0 && step_.state[static_cast<size_t>(entry)].role == ir::StateRole::Carried;
}

int64_t Residency::whole_bytes(const ir::Graph& graph, const ir::Node& start) const {
  const auto transfer = cost::transfer_of(graph, start);
  return analysis::aligned_bytes(cost::padded_bytes(step_, *transfer));
}

void Residency::keep(const std::vector<const ResidencyCandidate*>& chosen) {
  if (chosen.empty()) return;
  const bool carries = step_.accumulation > 1;
  const bool peeled = carries && peel_first_micro_batch();
  if (carries) {
    carry(chosen, peeled);
    return;
  }
  for (const ResidencyCandidate* candidate : chosen) keep_in_one_program(*candidate);
}

// Node ids of a clone are those of its origin, so the candidates stay true.
bool Residency::peel_first_micro_batch() {
  if (step_.programs[0].repeat == 1) return false;
  ir::Program first{step_.programs[0].graph, 1};
  first.graph.set_name("first");
  --step_.programs[0].repeat;
  step_.programs.insert(step_.programs.begin(), std::move(first));
  return true;
}

void Residency::keep_in_one_program(const ResidencyCandidate& candidate) {
  const std::vector<Gather>& gathers = candidate.gathers[0];
  ir::Graph& graph = step_.programs[0].graph;
  const auto last =
      std::max_element(gathers.begin(), gathers.end(), [&](const Gather& a, const Gather& b) {
        return axes_[0].position(a.release) < axes_[0].position(b.release);
      });
  for (const Gather& gather : gathers) {
    if (gather.release != last->release) graph.erase(gather.release);
  }
  const ValueId whole = graph.node(gathers[0].done).results[0];
  for (size_t i = 1; i < gathers.size(); ++i) {
    leave_bucket(graph, gathers[i].start);
    replace(graph, gathers[i], whole);
  }
}

void Residency::carry(const std::vector<const ResidencyCandidate*>& chosen, bool peeled) {
  std::vector<int> carried;
  carried.reserve(chosen.size());
  for (const ResidencyCandidate* candidate : chosen) carried.push_back(add_carried(*candidate));
  for (size_t p = 0; p < step_.programs.size(); ++p) {
    ir::Graph& graph = step_.programs[p].graph;
    std::vector<ValueId> wholes;
    wholes.reserve(carried.size());
    StateValues values(step_, graph);
    for (int entry : carried) wholes.push_back(values.of(entry));
    for (size_t c = 0; c < chosen.size(); ++c) {
      const std::vector<Gather>& gathers = chosen[c]->gathers[p - (peeled && p > 0 ? 1 : 0)];
      for (size_t i = 0; i < gathers.size(); ++i) {
        graph.erase(gathers[i].release);
        if (p == 0 && i == 0) {
          wholes[c] = gather_into(graph, gathers[0], wholes[c]);
        } else {
          leave_bucket(graph, gathers[i].start);
        }
        replace(graph, gathers[i], wholes[c]);
      }
    }
  }
}

int Residency::add_carried(const ResidencyCandidate& candidate) {
  const ir::StateEntry& shard = step_.state[static_cast<size_t>(candidate.entry)];
  const ir::Parameter& parameter = step_.parameters[static_cast<size_t>(shard.parameter)];
  const ir::Graph& graph = step_.programs[0].graph;
  ir::StateEntry entry;
  entry.name = "carried." + parameter.fqn;
  entry.role = ir::StateRole::Carried;
  entry.parameter = shard.parameter;
  entry.type = graph.value(graph.node(candidate.gathers[0][0].done).results[0]).type;
  entry.storage_elements =
      parameter.shard * step_.mesh.size(ir::axes_with(shard.type, ir::AxisPlacement::FlatShard));
  return add_entry(step_, std::move(entry));
}

std::vector<base::RemarkSubject> parameters_of(
    const ir::Step& step, const std::vector<const ResidencyCandidate*>& candidates) {
  std::vector<base::RemarkSubject> subjects;
  for (const ResidencyCandidate* candidate : candidates) {
    const int parameter = step.state[static_cast<size_t>(candidate->entry)].parameter;
    subjects.push_back({base::SubjectKind::Parameter, parameter});
  }
  return subjects;
}

}  // namespace dc::schedule
