// How fast the simulator is: simulate_benchmark [model.pt2]. Llama-3-70B for 32 ranks, ZeRO 3 with
// prefetch and overlap, unless another archive is given; times by the analytic cost model, once
// with contention. Bound: a million events a second. Not a test.
#include <chrono>
#include <cstdio>

#include "src/cost/analytic.h"
#include "src/frontend/import.h"
#include "src/passes/pass_manager.h"
#include "src/sim/bounds.h"
#include "src/sim/machine.h"
#include "src/sim/simulate.h"

namespace dc::sim {
namespace {

constexpr const char* kChain =
    "normalize-graph,shard-parameters=3,insert-collectives,add-update,schedule,prefetch-gathers,"
    "overlap-reductions";

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds that one call takes, over about half a second of calls.
template <typename F>
double time_of(F call) {
  const double begin = seconds();
  int calls = 0;
  do {
    call();
    ++calls;
  } while (seconds() - begin < 0.5);
  return (seconds() - begin) / calls;
}

void time_machine(const char* what, const Schedule& schedule) {
  int64_t sink = 0;
  const double s = time_of([&] { sink += Machine(schedule).finish().time.v; });
  std::printf("%-28s %9.3f ms  %6.1f M events/s%s\n", what, 1e3 * s,
              static_cast<double>(schedule.events.size()) / s / 1e6, sink == 0 ? " (nothing)" : "");
}

int run(const char* path) {
  base::Result<ir::Step> step = frontend::import_archive(path);
  if (!step.ok()) return std::fprintf(stderr, "%s\n", step.status().to_string().c_str()), 1;
  step->mesh.axes = {{"dp", 32}};
  const cost::AnalyticCost cost(1);
  const passes::Options options;
  std::vector<passes::Remark> remarks;
  passes::PassContext context{cost, options, remarks};
  const auto chain = passes::parse_passes(kChain);
  const auto change = passes::run_passes(*step, *chain, context);
  if (!change.ok()) return std::fprintf(stderr, "%s\n", change.status().to_string().c_str()), 1;
  const ir::Graph& graph = step->programs.back().graph;
  Schedule schedule = schedule_of(*step, graph, cost);
  std::printf("%zu nodes, %zu events, %zu transfers\n", graph.node_count(), schedule.events.size(),
              schedule.transfers.size());
  time_machine("simulate", schedule);
  for (Transfer& transfer : schedule.transfers) transfer.contention = {1200, 1150};
  time_machine("simulate with contention", schedule);
  std::printf("%-28s %9.3f ms\n", "schedule from the step",
              1e3 * time_of([&] { (void)schedule_of(*step, graph, cost); }));
  std::printf("%-28s %9.3f ms\n", "simulate a step",
              1e3 * time_of([&] { (void)simulate(*step, cost); }));
  std::printf("%-28s %9.3f ms\n", "bounds of a step",
              1e3 * time_of([&] { (void)bounds(*step, cost); }));
  return 0;
}

}  // namespace
}  // namespace dc::sim

int main(int argc, char** argv) {
  return dc::sim::run(argc > 1 ? argv[1] : DC_SOURCE_DIR "/tests/data/llama_70b_cuda.pt2");
}
