#include "src/layout/allocate.h"

#include <algorithm>

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

struct Placed {
  int64_t bytes = 0, live = 0;
  std::string algorithm;
};

base::Result<Placed> place_program(const ir::Step& step, ir::Graph& graph, int64_t base_offset,
                                   const cost::CostModel& costs) {
  analysis::Liveness live = analysis::liveness(step, graph, analysis::StorageMap(step, graph));
  std::vector<Request> requests;
  for (const auto& range : live.ranges)
    requests.push_back({range.first, range.last, range.bytes.v});
  std::vector<ir::NodeId> users;  // of scratch, in the order of their requests
  for (size_t i = 0; i < live.order.size(); ++i) {
    int64_t bytes = costs.scratch(graph, graph.node(live.order[i])).bytes.v;
    graph.node(live.order[i]).scratch = {};
    if (bytes <= 0) continue;
    users.push_back(live.order[i]);
    requests.push_back({static_cast<int32_t>(i), static_cast<int32_t>(i), bytes});
  }
  Layout layout = best_layout(requests);
  if (Status status = check(requests, layout); !status.ok()) {
    return std::move(status).add_context("in the layout of program '" + graph.name() + "'");
  }
  auto location = [&](size_t i) {
    return ir::Location{ir::Space::Device, base_offset + layout.offsets[i], requests[i].bytes};
  };
  for (size_t i = 0; i < live.ranges.size(); ++i)
    graph.value(live.ranges[i].value).location = location(i);
  for (size_t i = 0; i < users.size(); ++i)
    graph.node(users[i]).scratch = location(live.ranges.size() + i);
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
