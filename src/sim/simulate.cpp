#include "src/sim/simulate.h"

#include <algorithm>

#include "src/analysis/liveness.h"
#include "src/cost/transfer.h"
#include "src/ir/effects.h"
#include "src/sim/play.h"

namespace dc::sim {

using base::Nanos;

Nanos node_time(const ir::Step& step, const ir::Graph& graph, const ir::Node& node,
                const cost::CostModel& cost) {
  const ir::OpTraits& op = ir::traits(node.kind);
  if (op.provider == ir::Provider::Comm && op.half == ir::Half::Start) {
    if (cost::joins(node)) return {};
    return cost::bucket_time(step, graph, node, cost).time;
  }
  if (const auto copy = cost::space_copy_of(step, graph, node))
    return cost.copy(copy->bytes, copy->from, copy->to).time;
  const bool is_kernel = ir::runs(node) && !ir::is_wait(node.kind);
  return is_kernel ? cost.compute(graph, node).time : Nanos{};
}

namespace {

// Each event of the schedule as it ran. A transfer is exposed while its done waits, or while it
// runs on stream 0.
ProgramRun run(const Schedule& schedule, const Schedule* before) {
  ProgramRun result;
  result.busy.resize(static_cast<size_t>(schedule.streams));
  const Played played = play(schedule, before);
  result.time = played.totals.time;
  result.exposed = played.totals.exposed;
  result.contention = played.totals.contention;
  const auto span = [&](size_t i) { return played.record.end[i] - played.record.begin[i]; };
  std::vector<Nanos> exposed(schedule.transfers.size());
  for (size_t i = 0; i < schedule.events.size(); ++i) {
    const Event& event = schedule.events[i];
    if (event.kind == EventKind::Done) exposed[static_cast<size_t>(event.transfer)] += span(i);
  }
  for (size_t i = 0; i < schedule.events.size(); ++i) {
    const Event& event = schedule.events[i];
    if (event.kind == EventKind::Done) continue;
    Interval interval{{event.origin}, 0, played.record.begin[i], played.record.end[i], {}};
    if (event.kind == EventKind::Start) {
      const auto transfer = static_cast<size_t>(event.transfer);
      interval.stream = schedule.transfers[transfer].stream;
      interval.exposed = interval.stream == 0 ? span(i) : exposed[transfer];
    }
    result.busy[static_cast<size_t>(interval.stream)] += span(i);
    result.intervals.push_back(interval);
  }
  return result;
}

}  // namespace

StepRun simulate(const ir::Step& step, const cost::CostModel& cost) {
  std::vector<Schedule> schedules;
  for (const ir::Program& program : step.programs)
    schedules.push_back(schedule_of(step, program.graph, cost));
  StepRun total;
  for (size_t p = 0; p < schedules.size(); ++p) {
    const int repeat = step.programs[p].repeat;
    const Loads loads = loads_of(schedules[p]);
    total.compute += loads.compute * repeat;
    total.communication += loads.communication * repeat;
    total.programs.push_back(run(schedules[p], p == 0 ? &schedules.back() : nullptr));
    const ProgramRun& first = total.programs.back();
    const Totals all =
        play_repeated(schedules[p], repeat, {first.time, first.exposed, first.contention});
    total.time += all.time;
    total.exposed += all.exposed;
    total.contention += all.contention;
  }
  return total;
}

}  // namespace dc::sim
