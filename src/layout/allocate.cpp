#include "src/layout/allocate.h"

#include <algorithm>
#include <map>

#include "src/analysis/memory.h"
#include "src/layout/check.h"
#include "src/layout/layout.h"

namespace dc::layout {
namespace {

using base::Status;

using ir::Space;

constexpr Space kSpaces[] = {Space::Device, Space::Host, Space::Disk};

// Returns the end of the state in `space`.
int64_t place_state(ir::Step& step, Space space) {
  int64_t end = 0;
  for (ir::StateEntry& entry : step.state) {
    if (entry.range_of >= 0 || entry.location.space != space) continue;
    int64_t bytes = analysis::state_bytes(entry).v;
    entry.location = {space, end, bytes};
    end += base::round_up(bytes, base::kAlignment);
  }
  for (ir::StateEntry& entry : step.state) {
    if (entry.range_of >= 0)
      entry.location = step.state[static_cast<size_t>(entry.range_of)].location;
  }
  return end;
}

// Inputs of a step with several programs lie above the state, at one place for all programs.
// Returns their end.
int64_t place_shared_inputs(ir::Step& step, int64_t end) {
  std::map<std::string, ir::Location> places;
  for (ir::Program& program : step.programs) {
    for (ir::NodeId id : program.graph.order()) {
      const ir::Node& node = program.graph.node(id);
      if (node.kind != ir::OpKind::Input) continue;
      ir::Value& value = program.graph.value(node.results[0]);
      int64_t bytes = value.type.storage_elements() * base::byte_size(value.type.dtype);
      auto [place, is_new] =
          places.try_emplace(analysis::input_name(node), ir::Location{Space::Device, end, bytes});
      if (is_new) end += base::round_up(bytes, base::kAlignment);
      value.location = place->second;
    }
  }
  return end;
}

struct Placed {
  int64_t bytes = 0, live = 0;
  std::string algorithm;
};

// The transients of one program in one space, as requests with the places to fill in.
struct Wanted {
  std::vector<Request> requests;
  std::vector<ir::Location*> locations;  // of each request
};

Wanted wanted(const ir::Step& step, ir::Graph& graph, const analysis::Liveness& live, Space space) {
  Wanted result;
  for (const auto& range : live.ranges) {
    ir::Value& value = graph.value(range.value);
    bool is_placed =
        step.programs.size() > 1 && graph.node(value.producer).kind == ir::OpKind::Input;
    if (is_placed || range.space != space) continue;
    result.requests.push_back({range.first, range.last, range.bytes.v});
    result.locations.push_back(&value.location);
  }
  return result;
}

void add_scratch(ir::Graph& graph, const analysis::Liveness& live, const cost::CostModel& costs,
                 Wanted& wanted) {
  for (size_t i = 0; i < live.order.size(); ++i) {
    ir::Node& node = graph.node(live.order[i]);
    node.scratch = {};
    int64_t bytes = costs.scratch(graph, node).bytes.v;
    if (bytes <= 0) continue;
    wanted.requests.push_back({static_cast<int32_t>(i), static_cast<int32_t>(i), bytes});
    wanted.locations.push_back(&node.scratch);
  }
}

// `enough`: bytes above `base_offset` that are few enough.
base::Result<Placed> place_program(const ir::Step& step, ir::Graph& graph,
                                   const analysis::Liveness& live, Space space, int64_t base_offset,
                                   const cost::CostModel& costs, int64_t enough) {
  Wanted wants = wanted(step, graph, live, space);
  if (space == Space::Device) add_scratch(graph, live, costs, wants);
  Layout layout = best_layout(wants.requests, enough);
  if (Status status = check(wants.requests, layout); !status.ok()) {
    return std::move(status).add_context("in the layout of program '" + graph.name() + "'");
  }
  for (size_t i = 0; i < wants.requests.size(); ++i) {
    *wants.locations[i] = {space, base_offset + layout.offsets[i], wants.requests[i].bytes};
  }
  return Placed{layout.bytes, lower_bound(wants.requests), layout.algorithm};
}

// What to say of a space that is too small.
struct Advice {
  const char *subject, *cure;
};
Advice advice(Space space) {
  switch (space) {
    case Space::Device:
      return {
          "the arena of each rank needs ",
          "raise --memory, use more ranks or a higher --zero, give --offload-space, or make the "
          "micro-batch smaller"};
    case Space::Host:
      return {"what each rank offloads to the host needs ",
              "raise --host-memory, or offload to disk with --offload-space disk"};
    case Space::Disk:
      return {"what each rank offloads to disk needs ", "raise --disk-memory, or offload less"};
  }
  return {"", ""};
}

Status over_budget(const ir::Step& step, Space space, base::Bytes budget) {
  analysis::PeakMemory peak = analysis::peak_memory(step, {}, 8, space);
  const std::string& program = step.programs[static_cast<size_t>(peak.program)].graph.name();
  const Advice text = advice(space);
  std::string sentence = text.subject + std::to_string(step.arena(space)) +
                         " bytes and the budget is " + std::to_string(budget.v) +
                         "; most live at index " + std::to_string(peak.position) + " of program '" +
                         program + "' (" + peak.node + " in module '" + peak.module +
                         "'): " + text.cure;
  Status status(base::ErrorKind::OutOfMemory, "DC7010", std::move(sentence));
  return std::move(status).add_context(analysis::describe(peak));
}

std::vector<analysis::Liveness> liveness_of(const ir::Step& step) {
  std::vector<analysis::Liveness> lives;
  for (const ir::Program& program : step.programs) {
    lives.push_back(
        analysis::liveness(step, program.graph, analysis::StorageMap(step, program.graph)));
  }
  return lives;
}

// `lives`: of each program. `enough`: an arena that is small enough.
base::Result<Allocation> allocate_space(ir::Step& step,
                                        const std::vector<analysis::Liveness>& lives, Space space,
                                        const cost::CostModel& costs, base::Bytes enough) {
  Allocation found;
  found.state.v = place_state(step, space);
  if (step.programs.size() > 1 && space == Space::Device)
    found.state.v = place_shared_inputs(step, found.state.v);
  for (size_t i = 0; i < step.programs.size(); ++i) {
    DC_ASSIGN_OR_RETURN(Placed placed,
                        place_program(step, step.programs[i].graph, lives[i], space, found.state.v,
                                      costs, enough.v - found.state.v));
    found.arena.v = std::max(found.arena.v, placed.bytes);
    found.live.v = std::max(found.live.v, placed.live);
    found.algorithms.push_back(std::move(placed.algorithm));
  }
  found.arena += found.state;
  found.live += found.state;
  return found;
}

}  // namespace

const std::optional<base::Bytes>& Budgets::of(Space space) const {
  return space == Space::Device ? device : space == Space::Host ? host : disk;
}

Status allocate(ir::Step& step, const cost::CostModel& costs, const Budgets& budgets,
                Allocation* allocation) {
  const std::vector<analysis::Liveness> lives = liveness_of(step);
  for (Space space : kSpaces) {
    DC_ASSIGN_OR_RETURN(const Allocation found, allocate_space(step, lives, space, costs, {}));
    step.arena(space) = found.arena.v;
    if (space == Space::Device && allocation != nullptr) *allocation = found;
  }
  for (Space space : kSpaces) {
    const std::optional<base::Bytes>& budget = budgets.of(space);
    if (budget && step.arena(space) > budget->v) return over_budget(step, space, *budget);
  }
  step.stage = ir::Stage::Allocated;
  return base::ok_status();
}

base::Result<Arenas> arenas_within(ir::Step step, const cost::CostModel& costs,
                                   const Budgets& budgets) {
  const std::vector<analysis::Liveness> lives = liveness_of(step);
  Arenas arenas{};
  for (Space space : kSpaces) {
    DC_ASSIGN_OR_RETURN(
        const Allocation found,
        allocate_space(step, lives, space, costs, budgets.of(space).value_or(base::Bytes{})));
    arenas[static_cast<size_t>(space)] = found.arena;
  }
  return arenas;
}

bool keeps(const Arenas& arenas, const Budgets& budgets) {
  return std::all_of(std::begin(kSpaces), std::end(kSpaces), [&](Space space) {
    const std::optional<base::Bytes>& budget = budgets.of(space);
    return !budget || arenas[static_cast<size_t>(space)] <= *budget;
  });
}

}  // namespace dc::layout
