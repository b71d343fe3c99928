#include "src/layout/allocate.h"

#include <algorithm>
#include <map>

#include "src/analysis/memory.h"
#include "src/layout/check.h"
#include "src/layout/layout.h"

namespace dc::layout {
namespace {

using base::Status;

int64_t place_state(ir::Step& step) {
  int64_t end = 0;
  for (ir::StateEntry& entry : step.state) {
    if (entry.range_of >= 0) continue;
    int64_t bytes = analysis::state_bytes(entry).v;
    entry.location = {ir::Space::Device, end, bytes};
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
      auto [place, is_new] = places.try_emplace(analysis::input_name(node),
                                                ir::Location{ir::Space::Device, end, bytes});
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

base::Result<Placed> place_program(const ir::Step& step, ir::Graph& graph, int64_t base_offset,
                                   const cost::CostModel& costs) {
  analysis::Liveness live = analysis::liveness(step, graph, analysis::StorageMap(step, graph));
  std::vector<Request> requests;
  std::vector<ir::Location*> locations;  // of each request
  for (const auto& range : live.ranges) {
    ir::Value& value = graph.value(range.value);
    bool is_placed =
        step.programs.size() > 1 && graph.node(value.producer).kind == ir::OpKind::Input;
    if (is_placed) continue;
    requests.push_back({range.first, range.last, range.bytes.v});
    locations.push_back(&value.location);
  }
  for (size_t i = 0; i < live.order.size(); ++i) {
    ir::Node& node = graph.node(live.order[i]);
    node.scratch = {};
    int64_t bytes = costs.scratch(graph, node).bytes.v;
    if (bytes <= 0) continue;
    requests.push_back({static_cast<int32_t>(i), static_cast<int32_t>(i), bytes});
    locations.push_back(&node.scratch);
  }
  Layout layout = best_layout(requests);
  if (Status status = check(requests, layout); !status.ok()) {
    return std::move(status).add_context("in the layout of program '" + graph.name() + "'");
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    *locations[i] = {ir::Space::Device, base_offset + layout.offsets[i], requests[i].bytes};
  }
  return Placed{layout.bytes, lower_bound(requests), layout.algorithm};
}

Status over_budget(const ir::Step& step, const Allocation& allocation, base::Bytes budget) {
  analysis::PeakMemory peak = analysis::peak_memory(step);
  const std::string& program = step.programs[static_cast<size_t>(peak.program)].graph.name();
  std::string sentence =
      "the arena of each rank needs " + std::to_string(allocation.arena.v) +
      " bytes and the budget is " + std::to_string(budget.v) + "; most live at index " +
      std::to_string(peak.position) + " of program '" + program + "' (" + peak.node +
      " in module '" + peak.module +
      "'): raise --memory, use more ranks or a higher --zero, or make the micro-batch smaller";
  Status status(base::ErrorKind::OutOfMemory, "DC7010", std::move(sentence));
  return std::move(status).add_context(analysis::describe(peak));
}

}  // namespace

Status allocate(ir::Step& step, const cost::CostModel& costs, std::optional<base::Bytes> budget,
                Allocation* allocation) {
  Allocation found;
  found.state.v = place_state(step);
  if (step.programs.size() > 1) found.state.v = place_shared_inputs(step, found.state.v);
  for (ir::Program& program : step.programs) {
    DC_ASSIGN_OR_RETURN(Placed placed, place_program(step, program.graph, found.state.v, costs));
    found.arena.v = std::max(found.arena.v, placed.bytes);
    found.live.v = std::max(found.live.v, placed.live);
    found.algorithms.push_back(std::move(placed.algorithm));
  }
  found.arena += found.state;
  found.live += found.state;
  step.arena_bytes = found.arena.v;
  if (allocation != nullptr) *allocation = found;
  if (budget && found.arena > *budget) return over_budget(step, found, *budget);
  step.stage = ir::Stage::Allocated;
  return base::ok_status();
}

}  // namespace dc::layout
