#include "src/sim/simulate.h"

#include <algorithm>

#include "src/analysis/liveness.h"
#include "src/cost/transfer.h"
#include "src/sim/machine.h"

namespace dc::sim {

using base::Nanos;

Nanos node_time(const ir::Step& step, const ir::Graph& graph, const ir::Node& node,
                const cost::CostModel& cost) {
  if (cost::transfer_of(graph, node)) {
    if (cost::joins(node)) return {};
    return cost::bucket_time(graph, node, step.mesh.world(), cost).time;
  }
  if (const auto copy = cost::space_copy_of(step, graph, node))
    return cost.copy(copy->bytes, copy->from, copy->to).time;
  const bool is_kernel = analysis::runs(node) && !ir::is_done(node.kind);
  return is_kernel ? cost.compute(graph, node).time : Nanos{};
}

namespace {

ProgramRun run(const Schedule& schedule) {
  ProgramRun result;
  result.busy.resize(static_cast<size_t>(schedule.streams));
  Record record;
  Machine machine(schedule, &record);
  const Totals totals = machine.finish();
  result.time = totals.time;
  result.exposed = totals.exposed;
  result.contention = totals.contention;
  for (size_t i = 0; i < schedule.events.size(); ++i) {
    const Event& event = schedule.events[i];
    if (event.kind == EventKind::Done) continue;
    Interval interval{{event.origin}, 0, record.begin[i], record.end[i], {}};
    if (event.kind == EventKind::Start) {
      interval.stream = schedule.transfers[static_cast<size_t>(event.transfer)].stream;
      interval.exposed = machine.exposed(event.transfer);
    }
    result.busy[static_cast<size_t>(interval.stream)] += interval.end - interval.begin;
    result.intervals.push_back(interval);
  }
  return result;
}

}  // namespace

ProgramRun simulate(const ir::Step& step, const ir::Graph& graph, const cost::CostModel& cost) {
  return run(schedule_of(step, graph, cost));
}

StepRun simulate(const ir::Step& step, const cost::CostModel& cost) {
  StepRun total;
  for (const ir::Program& program : step.programs) {
    const Schedule schedule = schedule_of(step, program.graph, cost);
    const Loads loads = loads_of(schedule);
    ProgramRun one = run(schedule);
    total.time += one.time * program.repeat;
    total.exposed += one.exposed * program.repeat;
    total.contention += one.contention * program.repeat;
    total.compute += loads.compute * program.repeat;
    total.communication += loads.communication * program.repeat;
    total.bound += loads.largest() * program.repeat;
    total.programs.push_back(std::move(one));
  }
  return total;
}

}  // namespace dc::sim
