// How fast the simulator is: simulate_benchmark [model.pt2]. Llama-3-70B for 32 ranks, ZeRO 3 with
// prefetch and overlap, unless another archive is given; times by the analytic cost model, once
// with contention. Bound: a million events a second. Then exchanges of a draft (src/schedule), each
// with its time and its peak, 1 in 100 compared with the step in which it is carried out. Bound:
// 5000 a second. Not a test.
#include <chrono>
#include <cstdio>
#include <random>

#include "src/analysis/live_bytes.h"
#include "src/cost/analytic.h"
#include "src/frontend/import.h"
#include "src/passes/pass_manager.h"
#include "src/schedule/draft.h"
#include "src/sim/bounds.h"
#include "src/sim/machine.h"
#include "src/sim/simulate.h"
#include "tests/source_dir.h"

namespace dc::sim {
namespace {

using base::Nanos;

constexpr const char* kStage =
    "normalize-graph,shard-parameters=3,insert-collectives,add-update,schedule";
constexpr const char* kChain = "prefetch-gathers,overlap-reductions";
// With all that may be gathered and made again.
constexpr const char* kLeast = "recompute=0,gather-by-block,overlap-reductions";

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

bool is_as_carried_out(const ir::Step& step, const schedule::Draft& draft, Nanos time,
                       const cost::CostModel& cost) {
  ir::Step kept = step;
  draft.carry_out(kept.programs.back().graph);
  const auto scratch = [&](const ir::Graph& graph, const ir::Node& node) {
    return cost.scratch(graph, node).bytes;
  };
  const ir::Graph& graph = kept.programs.back().graph;
  const analysis::Liveness live =
      analysis::liveness(kept, graph, analysis::StorageMap(kept, graph));
  return simulate(kept, cost).programs.back().time == time &&
         analysis::live_bytes(graph, live, scratch).peak(ir::Space::Device).bytes.v ==
             draft.most_bytes();
}

// Some neighbours of one kind are taken, some of another are given back; every tenth exchange
// stays.
void time_exchanges(const ir::Step& step, const cost::CostModel& cost) {
  constexpr int kExchanges = 20000, kCompared = 100;
  schedule::Draft draft(step, step.programs.back().graph, cost);
  const size_t items = draft.items().size();
  std::mt19937 random(1);
  double spent = 0;
  int wrong = 0;
  for (int i = 0; i < kExchanges; ++i) {
    const double begin = seconds();
    for (const bool taken : {false, true}) {
      const size_t first = random() % items;
      for (size_t item = first, left = 1 + random() % 8; item < items && left > 0; ++item) {
        if (draft.is_taken(item) != taken ||
            draft.items()[item].alike != draft.items()[first].alike)
          continue;
        draft.toggle(item);
        --left;
      }
    }
    const Nanos time = draft.time();
    spent += seconds() - begin;
    if (i % kCompared == 0 && !is_as_carried_out(step, draft, time, cost)) ++wrong;
    const double end = seconds();
    if (i % 10 == 0) {
      draft.accept();
    } else {
      draft.reject();
    }
    spent += seconds() - end;
  }
  std::printf("%-28s %9.3f ms  %6.0f a second, %zu items; %d of %d compared differ\n",
              "an exchange", 1e3 * spent / kExchanges, kExchanges / spent, items, wrong,
              kExchanges / kCompared);
}

int run(const std::string& path) {
  base::Result<ir::Step> step = frontend::import_archive(path);
  if (!step.ok()) return std::fprintf(stderr, "%s\n", step.status().to_string().c_str()), 1;
  step->mesh.axes = {{"dp", 32}};
  const cost::AnalyticCost cost(1);
  passes::Options options;
  options.budgets[ir::Space::Device] = base::Bytes{int64_t{1} << 50};
  std::vector<passes::Remark> remarks;
  passes::PassContext context{cost, options, remarks};
  const auto run_chain = [&](ir::Step& on, const char* chain) {
    const auto change = passes::run_passes(on, *passes::parse_passes(chain), context);
    if (!change.ok()) std::fprintf(stderr, "%s\n", change.status().to_string().c_str());
    return change.ok();
  };
  if (!run_chain(*step, kStage)) return 1;
  ir::Step least = *step;
  if (!run_chain(*step, kChain) || !run_chain(least, kLeast)) return 1;
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
  time_exchanges(least, cost);
  return 0;
}

}  // namespace
}  // namespace dc::sim

int main(int argc, char** argv) {
  return dc::sim::run(argc > 1 ? argv[1]
                               : dc::kSourceDir + std::string("/tests/data/llama_70b_cuda.pt2"));
}
