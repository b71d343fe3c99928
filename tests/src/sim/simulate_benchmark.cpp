// How fast the simulator is: simulate_benchmark [model.pt2]. Llama-3-70B for 32 ranks, ZeRO 3 with
// prefetch and overlap, unless another archive is given; times by the analytic cost model, once
// with contention. Bound: a million events a second. Not a test.
#include <chrono>
#include <cstdio>

#include "src/cost/analytic.h"
#include "src/frontend/import.h"
#include "src/passes/pass.h"
#include "src/sim/bounds.h"
#include "src/sim/simulate.h"
#include "src/sim/timeline.h"
#include "tests/src/sim/random_schedule.h"

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

// Starts of collectives go a little to and fro.
void time_edits(const char* what, const Schedule& schedule) {
  Timeline timeline(schedule);
  Dice dice(1);
  std::vector<int32_t> starts;
  for (size_t i = 64; i < schedule.events.size(); ++i) {
    if (schedule.events[i].kind == EventKind::Start) starts.push_back(static_cast<int32_t>(i));
  }
  const int64_t before = timeline.events_played();
  int64_t edits = 0;
  const double s = time_of([&] {
    const int32_t from =
        starts[static_cast<size_t>(dice.below(static_cast<int32_t>(starts.size())))];
    const int32_t to = from - 1 - dice.below(32);
    timeline.move(from, to);
    timeline.move(to, from);
    edits += 2;
  });
  std::printf("%-28s %9.4f ms  %6.0f events played\n", what, 1e3 * s / 2,
              static_cast<double>(timeline.events_played() - before) / static_cast<double>(edits));
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
  time_edits("one change", schedule);
  for (Transfer& transfer : schedule.transfers) transfer.contention = {1200, 1150};
  time_machine("simulate with contention", schedule);
  time_edits("one change with contention", schedule);
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
