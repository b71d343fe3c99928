// Fusion decided together with residency, recomputation and offloading, next to fusion before all
// of them and to none: fusion_table MODEL.pt2 PROFILE.json|- WORLD [BUDGETS [OFFLOAD(none|host)
// [EFFORT]]]. One line of JSON per budget of device memory, from what ZeRO 3 needs with all made
// again to what it needs with all kept: step times of what the search finds without fusion, with
// fuse-elementwise in every chain, and by its own choice; seconds of CPU. "-": a generic CPU.
// Simulated; not a test; scripts/benchmark/fusion.py makes the table.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "src/cost/costs.h"
#include "src/frontend/import.h"
#include "src/profile/profile_file.h"
#include "src/search/auto.h"
#include "src/search/chains.h"
#include "src/search/moves.h"

namespace dc::search {
namespace {

using base::Result;

struct Case {
  ir::Step step;
  const cost::CostModel& cost;
  passes::Options options;
  int effort = 0;
};

double seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Live bytes of the device that zero3 needs, `recompute` given.
Result<int64_t> bytes_of(const Case& one, const char* recompute) {
  const std::string zero3 = passes::print(*find_chain("zero3"));
  std::string text = zero3;
  text.replace(text.find(",recompute"), sizeof(",recompute") - 1, recompute);
  DC_ASSIGN_OR_RETURN(const passes::Chain chain, passes::parse_passes(text));
  ScheduledSteps steps(one.step, one.options, one.cost);
  DC_ASSIGN_OR_RETURN(const ir::Step made, steps.made({chain, {}}));
  return live_bytes(made, one.cost);
}

base::Status print_row(Case& one, int64_t budget) {
  one.options.budgets[ir::Space::Device] = base::Bytes{budget};
  std::printf("{\"budget\": %ld", budget);
  for (const auto& [name, fusion] :
       {std::pair("off", std::optional<size_t>(2)), std::pair("on", std::optional<size_t>(0)),
        std::pair("joint", std::optional<size_t>())}) {
    SearchOptions search;
    search.effort = one.effort;
    search.fusion = fusion;
    const double begin = seconds();
    DC_ASSIGN_OR_RETURN(const SearchResult found,
                        find_best(one.step, one.options, one.cost, search));
    const int64_t time = found.fits ? found.time.v : 0;
    std::printf(", \"%s_ns\": %ld, \"%s_bound_ns\": %ld, \"%s_s\": %.1f", name, time, name,
                found.bound.v, name, seconds() - begin);
    if (!fusion) std::printf(", \"chain\": \"%s\"", passes::print(found.chain).c_str());
  }
  std::printf("}\n");
  std::fflush(stdout);
  return {};
}

base::Status run(int argc, char** argv) {
  DC_ASSIGN_OR_RETURN(ir::Step step, frontend::import_archive(argv[1]));
  std::optional<profile::Profile> profile;
  if (std::string(argv[2]) != "-") {
    DC_ASSIGN_OR_RETURN(profile, profile::read_profile(argv[2]));
  }
  const cost::Costs costs(profile, 1);
  step.mesh.axes = {{"dp", std::atoi(argv[3])}};
  const int budgets = argc > 4 ? std::atoi(argv[4]) : 8;
  Case one{std::move(step), costs.model(), {}, 0};
  one.options.reduction_order = passes::ReductionOrder::PerMicroBatch;
  one.options.providers = passes::Providers::Native;
  if (argc > 5 && std::string(argv[5]) == "host") one.options.offload_space = ir::Space::Host;
  one.effort = argc > 6 ? std::atoi(argv[6]) : default_effort(one.step, one.options);
  DC_ASSIGN_OR_RETURN(const int64_t least, bytes_of(one, ",recompute=0"));
  DC_ASSIGN_OR_RETURN(const int64_t most, bytes_of(one, ""));
  for (int i = 0; i < budgets; ++i) {
    const double part = static_cast<double>(i) / std::max(1, budgets - 1);
    const double budget = 1.02 * static_cast<double>(least) *
                          std::pow(static_cast<double>(most) / static_cast<double>(least), part);
    DC_RETURN_IF_ERROR(print_row(one, static_cast<int64_t>(budget)));
  }
  return {};
}

}  // namespace
}  // namespace dc::search

int main(int argc, char** argv) {
  if (argc < 4)
    return std::fprintf(stderr,
                        "fusion_table MODEL PROFILE|- WORLD [BUDGETS [OFFLOAD [EFFORT]]]\n"),
           64;
  const dc::base::Status status = dc::search::run(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return dc::base::exit_code(status.kind());
}
