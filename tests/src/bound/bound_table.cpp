// The lower bound next to what chains make: bound_table MODEL.pt2 PROFILE.json WORLD ACCUMULATION
// OFFLOAD(none|host|disk) [RECOMPUTE(auto|off|full) [BUDGETS [EFFORT]]]. One line per budget, from
// the smallest that some named chain fits to more than any needs: bound, best named chain within
// the budget (live bytes), or, with an effort, what the search finds; ratio. Exits 1 if a chain is
// below the bound. Not a test: minutes.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "src/analysis/memory.h"
#include "src/cost/costs.h"
#include "src/frontend/import.h"
#include "src/profile/profile_file.h"
#include "src/search/auto.h"
#include "src/search/certificate.h"
#include "src/search/chains.h"
#include "src/sim/simulate.h"

namespace dc::search {
namespace {

struct Run {
  std::string name;
  double time = 0;
  int64_t bytes = 0;
};

struct Case {
  ir::Step step;
  const cost::CostModel& cost;
  passes::Options options;
  int effort = 0;  // of the search; 0: named chains alone
};

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void add_runs(const Case& one, std::vector<Run>& found) {
  for (const NamedChain& named : named_chains()) {
    const bool by_host = named.passes.find("split-by-host") != std::string_view::npos;
    if (by_host && !one.options.ranks_per_host) continue;
    if (!one.options.offload_space && named.passes.find("offload-") != std::string_view::npos)
      continue;
    const auto chain = find_chain(named.name);
    ir::Step step = one.step;
    std::vector<passes::Remark> remarks;
    passes::PassContext context{one.cost, one.options, remarks};
    context.collect_remarks = false;
    base::Status status;
    for (const passes::PassCall& call : *chain) {
      if (call.pass->gives == ir::Stage::Allocated) continue;
      if (status.ok()) status = passes::apply(call, step, context).status();
    }
    if (!status.ok()) {
      std::printf("  %s: %s\n", std::string(named.name).c_str(), status.sentence().c_str());
      continue;
    }
    const auto peak =
        analysis::peak_memory(step, [&](const ir::Graph& graph, const ir::Node& node) {
          return one.cost.scratch(graph, node).bytes;
        });
    const bool full = one.options.recompute == passes::Recompute::Full;
    found.push_back({std::string(named.name) + (full ? "/full" : ""),
                     static_cast<double>(sim::simulate(step, one.cost).time.v), peak.live.v});
  }
}

// Of all named chains; where recomputation is chosen, with all of it too.
std::vector<Run> runs(const Case& one) {
  std::vector<Run> found;
  add_runs(one, found);
  if (one.options.recompute == passes::Recompute::Auto) {
    Case full = one;
    full.options.recompute = passes::Recompute::Full;
    add_runs(full, found);
  }
  return found;
}

// Whether nothing is below the bound.
bool print_row(Case& one, int64_t budget) {
  one.options.budgets[ir::Space::Device] = base::Bytes{budget};
  const double begin = seconds();
  ScheduledSteps steps(one.step, one.options, one.cost);
  const auto found = certificate(steps, one.step, one.options, one.cost, 0);
  const double took = seconds() - begin;
  if (!found.ok()) return std::printf("%s\n", found.status().to_string().c_str()), false;
  const Run* best = nullptr;
  std::vector<Run> all = runs(one);
  SearchOptions search;
  if (one.effort > 0) {
    search.effort = one.effort;
    const auto sought = find_best(one.step, one.options, one.cost, search);
    if (!sought.ok()) return std::printf("%s\n", sought.status().to_string().c_str()), false;
    if (sought->fits) all.push_back({"auto", static_cast<double>(sought->time.v), budget});
  }
  for (const Run& run : all) {
    if (run.bytes <= budget && (best == nullptr || run.time < best->time)) best = &run;
  }
  int priced = 0;
  double sum = 0;
  for (const bound::PricedInstant& instant : found->instants) {
    priced += instant.ns_per_byte > 0;
    sum += instant.ns_per_byte;
  }
  const auto bound = static_cast<double>(found->time.v);
  std::printf("%7.2f GiB bound %10.3f ms (%4.2f s, %d evaluations; weights",
              static_cast<double>(budget) / 0x1p30, bound / 1e6, took, found->evaluations);
  for (const double weight : found->weights.ns) std::printf(" %.3f", weight);
  std::printf("; %d of %zu priced, %.3f ms/GiB)", priced, found->instants.size(),
              sum * 0x1p30 / 1e6);
  if (best == nullptr) return std::printf(" nothing fits\n"), true;
  std::printf(" best %10.3f ms %-14s ratio %.4f\n", best->time / 1e6, best->name.c_str(),
              best->time / bound);
  std::fflush(stdout);
  return best->time >= bound;
}

int run(int argc, char** argv) {
  auto step = frontend::import_archive(argv[1]);
  const auto profile = profile::read_profile(argv[2]);
  if (!step.ok() || !profile.ok()) return std::fprintf(stderr, "cannot read\n"), 2;
  const cost::Costs costs(*profile, 1);
  Case one{std::move(*step), costs.model(), {}, argc > 8 ? std::atoi(argv[8]) : 0};
  one.step.mesh.axes = {{"dp", std::atoi(argv[3])}};
  one.step.accumulation = std::atoi(argv[4]);
  one.options.reduction_order = passes::ReductionOrder::PerMicroBatch;
  const std::string away = argv[5], recompute = argc > 6 ? argv[6] : "auto";
  if (away != "none")
    one.options.offload_space = away == "host" ? ir::Space::Host : ir::Space::Disk;
  if (recompute != "auto")
    one.options.recompute = recompute == "off" ? passes::Recompute::Off : passes::Recompute::Full;
  const int budgets = argc > 7 ? std::atoi(argv[7]) : 12;
  // From what most offloading and recomputation reaches to what nothing kept away needs.
  int64_t least = INT64_MAX, most = 0;
  one.options.budgets[ir::Space::Device] = base::Bytes{1};
  for (const Run& run : runs(one)) least = std::min(least, run.bytes);
  one.options.budgets[ir::Space::Device].reset();
  for (const Run& run : runs(one)) most = std::max(most, run.bytes);
  most = std::min(most, least * 4);
  bool holds = true;
  for (int i = 0; i < budgets; ++i) {
    const double part = static_cast<double>(i) / std::max(1, budgets - 1);
    const auto budget = static_cast<int64_t>(
        static_cast<double>(least) * 1.001 *
        std::pow(static_cast<double>(most) * 1.01 / static_cast<double>(least), part));
    holds = print_row(one, budget) && holds;
  }
  return holds ? 0 : 1;
}

}  // namespace
}  // namespace dc::search

int main(int argc, char** argv) {
  if (argc < 6) return 64;
  return dc::search::run(argc, argv);
}
