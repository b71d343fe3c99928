#include "src/sim/simulate.h"

#include <algorithm>

#include "src/analysis/liveness.h"
#include "src/cost/transfer.h"

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

ProgramRun simulate(const ir::Step& step, const ir::Graph& graph, const cost::CostModel& cost) {
  ProgramRun run;
  run.busy.resize(step.streams.size());
  std::vector<Nanos> now(step.streams.size());                  // when each stream is free
  std::vector<int32_t> interval_of(graph.node_capacity(), -1);  // of starts
  for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    const ir::Node& node = graph.node(id);
    const auto stream = static_cast<size_t>(node.stream);
    if (!analysis::runs(node)) continue;
    if (ir::is_done(node.kind)) {
      Interval& started = run.intervals[static_cast<size_t>(
          interval_of[graph.value(node.operands[0]).producer.index()])];
      const Nanos wait = std::max(Nanos{}, started.end - now[stream]);
      started.exposed += wait;
      run.exposed += wait;
      now[stream] += wait;
      continue;
    }
    if (cost::joins(node)) {  // travels with the start before it
      interval_of[id.index()] = static_cast<int32_t>(run.intervals.size()) - 1;
      continue;
    }
    const Nanos time = node_time(step, graph, node, cost);
    const Nanos begin = std::max(now[stream], now[0]);
    interval_of[id.index()] = static_cast<int32_t>(run.intervals.size());
    run.intervals.push_back({id, node.stream, begin, begin + time, {}});
    now[stream] = begin + time;
    run.busy[stream] += time;
  }
  for (Nanos end : now) run.time = std::max(run.time, end);
  return run;
}

StepRun simulate(const ir::Step& step, const cost::CostModel& cost) {
  StepRun total;
  for (const ir::Program& program : step.programs) {
    ProgramRun run = simulate(step, program.graph, cost);
    total.time += run.time * program.repeat;
    total.exposed += run.exposed * program.repeat;
    if (!run.busy.empty())
      total.bound += *std::max_element(run.busy.begin(), run.busy.end()) * program.repeat;
    for (size_t stream = 0; stream < run.busy.size(); ++stream) {
      (stream == 0 ? total.compute : total.communication) += run.busy[stream] * program.repeat;
    }
    total.programs.push_back(std::move(run));
  }
  return total;
}

}  // namespace dc::sim
