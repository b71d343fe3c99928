#include "src/layout/allocate.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "src/analysis/memory.h"
#include "src/layout/check.h"
#include "src/layout/layout.h"

namespace dc::layout {
namespace {

using base::Status;

using ir::Space;

// Calls place(entry's index, location) for the state entries of `space` that are not ranges of
// others. Returns their end.
template <typename Place>
int64_t place_state(const ir::Step& step, Space space, Place place) {
  int64_t end = 0;
  for (size_t i = 0; i < step.state.size(); ++i) {
    const ir::StateEntry& entry = step.state[i];
    if (entry.range_of >= 0 || entry.location.space != space) continue;
    int64_t bytes = analysis::state_bytes(entry).v;
    place(i, ir::Location{space, end, bytes});
    end += base::round_up(bytes, base::kAlignment);
  }
  return end;
}

// Inputs of a step with several programs lie above the state, at one place for all programs:
// place(program's index, value, location). Returns their end.
template <typename Place>
int64_t place_shared_inputs(const ir::Step& step, int64_t end, Place place) {
  std::map<std::string, ir::Location> places;
  for (size_t i = 0; i < step.programs.size(); ++i) {
    const ir::Graph& graph = step.programs[i].graph;
    for (ir::NodeId id : graph.order()) {
      const ir::Node& node = graph.node(id);
      if (node.kind != ir::OpKind::Input) continue;
      const int64_t bytes = graph.storage(node.results[0]).bytes;
      auto [found, is_new] =
          places.try_emplace(analysis::input_name(node), ir::Location{Space::Device, end, bytes});
      if (is_new) end += base::round_up(bytes, base::kAlignment);
      place(i, node.results[0], found->second);
    }
  }
  return end;
}

// What lies below the transients: state, and inputs if several programs share them. Returns its
// end.
int64_t place_shared(ir::Step& step, Space space) {
  const int64_t end = place_state(step, space, [&](size_t entry, const ir::Location& location) {
    step.state.edit(entry).location = location;
  });
  for (size_t i = 0; i < step.state.size(); ++i) {
    const int whole = step.state[i].range_of;
    if (whole >= 0) step.state.edit(i).location = step.state[static_cast<size_t>(whole)].location;
  }
  if (step.programs.size() <= 1 || space != Space::Device) return end;
  return place_shared_inputs(step, end,
                             [&](size_t program, ir::ValueId value, const ir::Location& location) {
                               step.programs[program].graph.edit_location(value) = location;
                             });
}
int64_t shared_bytes(const ir::Step& step, Space space) {
  const int64_t end = place_state(step, space, [](size_t, const ir::Location&) {});
  if (step.programs.size() <= 1 || space != Space::Device) return end;
  return place_shared_inputs(step, end, [](size_t, ir::ValueId, const ir::Location&) {});
}

// The transients of one program in one space, as requests: first those of `values`, then the
// scratch of `nodes`.
struct ProgramDemand {
  std::vector<Request> requests;
  std::vector<ir::ValueId> values;
  std::vector<ir::NodeId> nodes;
};

void add_scratch(const ir::Graph& graph, const analysis::Liveness& live,
                 const cost::CostModel& costs, ProgramDemand& wanted) {
  for (size_t i = 0; i < live.order.size(); ++i) {
    int64_t bytes = costs.scratch(graph, graph.node(live.order[i])).bytes.v;
    if (bytes <= 0) continue;
    wanted.requests.push_back({static_cast<int32_t>(i), static_cast<int32_t>(i), bytes});
    wanted.nodes.push_back(live.order[i]);
  }
}

ProgramDemand wanted(const ir::Step& step, const ir::Graph& graph, const analysis::Liveness& live,
                     Space space, const cost::CostModel& costs) {
  ProgramDemand result;
  for (const auto& range : live.ranges) {
    const ir::Value& value = graph.value(range.value);
    bool is_placed =
        step.programs.size() > 1 && graph.node(value.producer).kind == ir::OpKind::Input;
    if (is_placed || range.space != space) continue;
    result.requests.push_back({range.first, range.last, range.bytes.v});
    result.values.push_back(range.value);
  }
  if (space == Space::Device) add_scratch(graph, live, costs, result);
  return result;
}

// `enough`: bytes that are few enough.
base::Result<Layout> checked_layout(const ProgramDemand& wanted, const ir::Graph& graph,
                                    int64_t enough) {
  Layout layout = best_layout(wanted.requests, enough);
  if (Status status = check(wanted.requests, layout); !status.ok()) {
    return std::move(status).add_context("in the layout of program '" + graph.name() + "'");
  }
  return layout;
}

// `base_offset`: where the transients begin.
void apply(const ProgramDemand& wanted, const Layout& layout, Space space, int64_t base_offset,
           ir::Graph& graph) {
  const auto location = [&](size_t request) {
    return ir::Location{space, base_offset + layout.offsets[request],
                        wanted.requests[request].bytes};
  };
  const size_t values = wanted.values.size();
  for (size_t i = 0; i < values; ++i) graph.edit_location(wanted.values[i]) = location(i);
  if (space == Space::Device) {
    for (ir::NodeId id : graph.order()) graph.edit(id).scratch = {};
  }
  for (size_t i = 0; i < wanted.nodes.size(); ++i)
    graph.edit(wanted.nodes[i]).scratch = location(values + i);
}

// Whether anything is in another space than the device.
bool has_offloaded(const ir::Step& step) {
  const auto is_away = [](const ir::StateEntry& entry) {
    return entry.location.space != Space::Device;
  };
  if (std::any_of(step.state.begin(), step.state.end(), is_away)) return true;
  for (const ir::Program& program : step.programs) {
    for (size_t i = 0; i < program.graph.value_capacity(); ++i) {
      const ir::ValueId value{static_cast<int32_t>(i)};
      if (program.graph.storage(value).location.space != Space::Device) return true;
    }
  }
  return false;
}

// What to say of a space that is too small.
struct Advice {
  std::string subject, cure;
};
Advice advice(const ir::Step& step, Space space, const Budgets& budgets) {
  if (space == Space::Device) {
    std::string raised = "--memory";
    for (const Space other : ir::kSpaces) {
      if (other == Space::Device || !budgets[other]) continue;
      raised += " or --" + std::string(base::name(other)) + "-memory";
    }
    const bool offloads = raised != "--memory" || has_offloaded(step);
    return {"the arena of each rank needs ",
            "raise " + raised + ", use more ranks or --zero 3, " +
                (offloads ? "" : "let --chain auto offload (--offload-space), ") +
                "or make the micro-batch smaller"};
  }
  const std::string text(base::name(space));
  const bool host = space == Space::Host;
  return {"what each rank offloads to " + (host ? "the " : std::string()) + text + " needs ",
          "raise --" + text + "-memory, or " +
              (host ? "give --offload-space disk in its place where the host updates nothing"
                    : "offload less")};
}

Status over_budget(const ir::Step& step, Space space, const Budgets& budgets) {
  analysis::PeakMemory peak = analysis::peak_memory(step, {}, 8, space);
  const std::string& program = step.programs[static_cast<size_t>(peak.program)].graph.name();
  const Advice text = advice(step, space, budgets);
  std::string sentence = text.subject + std::to_string(step.arena_bytes[space]) +
                         " bytes and the budget is " + std::to_string(budgets[space]->v) +
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

// What each program wants above `shared` bytes in one space.
struct Demand {
  int64_t shared = 0;
  std::vector<ProgramDemand> programs;
};
Demand demand_of(const ir::Step& step, const std::vector<analysis::Liveness>& lives, Space space,
                 const cost::CostModel& costs) {
  Demand demand{shared_bytes(step, space), {}};
  for (size_t i = 0; i < step.programs.size(); ++i)
    demand.programs.push_back(wanted(step, step.programs[i].graph, lives[i], space, costs));
  return demand;
}

// Without a layout: no program's transients take fewer bytes.
std::vector<int64_t> least_of(const Demand& demand) {
  std::vector<int64_t> least;
  for (const ProgramDemand& wants : demand.programs) least.push_back(lower_bound(wants.requests));
  return least;
}

// Indices of the largest first.
std::vector<size_t> largest_first(const std::vector<int64_t>& least) {
  std::vector<size_t> order(least.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return least[a] > least[b]; });
  return order;
}

// `lives`: of each program. `budget`: to be kept if it can be. What keeps it need not be found
// without it. Where nothing does, the programs are laid out as in arena_within(), so both say the
// same.
base::Result<Allocation> allocate_space(ir::Step& step,
                                        const std::vector<analysis::Liveness>& lives, Space space,
                                        const cost::CostModel& costs, base::Bytes taken,
                                        const std::optional<base::Bytes>& budget) {
  Allocation found;
  found.state.v = std::max(place_shared(step, space), space == Space::Device ? taken.v : 0);
  const Demand demand = demand_of(step, lives, space, costs);
  const std::vector<int64_t> least = least_of(demand);
  std::vector<Layout> layouts;
  for (size_t i = 0; i < step.programs.size(); ++i) {
    DC_ASSIGN_OR_RETURN(Layout layout,
                        checked_layout(demand.programs[i], step.programs[i].graph, 0));
    layouts.push_back(std::move(layout));
  }
  for (const size_t i : largest_first(least)) {
    const int64_t enough = budget ? std::max((*budget - found.state).v, found.arena.v) : INT64_MAX;
    if (enough > 0 && layouts[i].bytes > enough) {
      DC_ASSIGN_OR_RETURN(layouts[i],
                          checked_layout(demand.programs[i], step.programs[i].graph, enough));
    }
    found.arena.v = std::max(found.arena.v, layouts[i].bytes);
    found.live.v = std::max(found.live.v, least[i]);
  }
  for (size_t i = 0; i < step.programs.size(); ++i) {
    apply(demand.programs[i], layouts[i], space, found.state.v, step.programs[i].graph);
    found.algorithms.push_back(layouts[i].algorithm);
  }
  found.arena += found.state;
  found.live += found.state;
  return found;
}

// The largest program decides: what is not larger than one before it is enough. `least`:
// least_of().
base::Result<base::Bytes> arena_within(const ir::Step& step, Demand demand,
                                       const std::vector<int64_t>& least, base::Bytes budget,
                                       KnownArenas* known) {
  int64_t enough = budget.v - demand.shared, most = 0;
  for (const size_t i : largest_first(least)) {
    ProgramDemand& wants = demand.programs[i];
    enough = std::max(enough, most);
    std::optional<int64_t> bytes;
    if (known != nullptr) bytes = known->find(wants.requests, enough);
    if (!bytes) {
      DC_ASSIGN_OR_RETURN(const Layout layout,
                          checked_layout(wants, step.programs[i].graph, enough));
      bytes = layout.bytes;
      if (known != nullptr) known->add(std::move(wants.requests), enough, layout);
    }
    most = std::max(most, *bytes);
  }
  return base::Bytes{demand.shared + most};
}

// Whether one space's arena keeps its budget; its bytes, if that took a layout.
struct Fit {
  bool fits = true;
  std::optional<base::Bytes> arena;
};
base::Result<Fit> fit_of(const ir::Step& step, const std::vector<analysis::Liveness>& lives,
                         Space space, const cost::CostModel& costs,
                         const std::optional<base::Bytes>& budget, KnownArenas* known) {
  if (!budget) return Fit();
  Demand demand = demand_of(step, lives, space, costs);
  const std::vector<int64_t> least = least_of(demand);
  for (const int64_t bytes : least) {
    if (demand.shared + bytes > budget->v) return Fit{false, {}};
  }
  DC_ASSIGN_OR_RETURN(const base::Bytes arena,
                      arena_within(step, std::move(demand), least, *budget, known));
  return Fit{arena <= *budget, arena};
}

}  // namespace

Status allocate(ir::Step& step, const cost::CostModel& costs, const Budgets& budgets,
                Allocation* allocation, base::Bytes taken) {
  const std::vector<analysis::Liveness> lives = liveness_of(step);
  for (Space space : ir::kSpaces) {
    DC_ASSIGN_OR_RETURN(const Allocation found,
                        allocate_space(step, lives, space, costs, taken, budgets[space]));
    step.arena_bytes[space] = found.arena.v;
    if (space == Space::Device && allocation != nullptr) *allocation = found;
  }
  for (Space space : ir::kSpaces) {
    const std::optional<base::Bytes>& budget = budgets[space];
    if (budget && step.arena_bytes[space] > budget->v) return over_budget(step, space, budgets);
  }
  step.stage = ir::Stage::Allocated;
  return base::ok_status();
}

base::Result<base::Bytes> device_arena(const ir::Step& step, const cost::CostModel& costs,
                                       base::Bytes budget, KnownArenas* known) {
  Demand demand = demand_of(step, liveness_of(step), Space::Device, costs);
  const std::vector<int64_t> least = least_of(demand);
  return arena_within(step, std::move(demand), least, budget, known);
}

base::Result<bool> fits(const ir::Step& step, const cost::CostModel& costs, const Budgets& budgets,
                        KnownArenas* known) {
  const auto has_budget = [&](Space space) { return budgets[space].has_value(); };
  if (std::ranges::none_of(ir::kSpaces, has_budget)) return true;
  const std::vector<analysis::Liveness> lives = liveness_of(step);
  for (Space space : ir::kSpaces) {
    DC_ASSIGN_OR_RETURN(const Fit fit, fit_of(step, lives, space, costs, budgets[space], known));
    if (!fit.fits) return false;
  }
  return true;
}

base::Result<std::optional<base::Bytes>> arena_if_too_large(const ir::Step& step,
                                                            const cost::CostModel& costs,
                                                            const Budgets& budgets,
                                                            KnownArenas* known) {
  const std::vector<analysis::Liveness> lives = liveness_of(step);
  std::optional<base::Bytes> device;
  for (Space space : ir::kSpaces) {
    DC_ASSIGN_OR_RETURN(const Fit fit, fit_of(step, lives, space, costs, budgets[space], known));
    if (space == Space::Device) device = fit.arena;
    if (fit.fits) continue;
    if (device) return device;
    Demand demand = demand_of(step, lives, Space::Device, costs);
    const std::vector<int64_t> least = least_of(demand);
    DC_ASSIGN_OR_RETURN(const base::Bytes arena, arena_within(step, std::move(demand), least,
                                                              *budgets[Space::Device], known));
    return std::optional<base::Bytes>(arena);
  }
  return std::optional<base::Bytes>();
}

}  // namespace dc::layout
