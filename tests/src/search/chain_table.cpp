// Fixed chains of one model at many budgets, in one process: chain_table MODEL.pt2 PROFILE.json|-
// CONFIG.json|- OPTIONS, with OPTIONS of `dcc compile`. Reads lines "BUDGET CHAIN", with the bytes
// of the device's memory or 0 for no limit, and answers each with a line of JSON: what the plan of
// `dcc compile --memory BUDGET --passes CHAIN` takes (step_ns, arena, peak), or why there is none
// (exit, error, needs). The archive is read once, and what chains begin with alike is computed
// once. Simulated; not a test; scripts/benchmark/joint.py asks it.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>

#include "src/base/json_writer.h"
#include "src/cost/costs.h"
#include "src/driver/compile.h"
#include "src/driver/compile_step.h"
#include "src/driver/within_budget.h"
#include "src/layout/allocate.h"
#include "src/search/smallest_chain.h"
#include "src/sim/simulate.h"

namespace dc::search {
namespace {

using base::Bytes;
using base::Result;
using base::Status;

// Makes steps of one chain up to the layout, for driver::within_budget().
class ChainCompiler {
 public:
  ChainCompiler(const passes::Chain& chain, const passes::Options& options,
                const cost::CostModel& cost, ScheduledSteps& steps, SmallestPlans& smallest)
      : chain_(chain), options_(options), cost_(cost), steps_(steps), smallest_(smallest) {}

  Result<ir::Step> run(const PlannedMemory& planned) {
    excess_.reset();
    const Candidate candidate{chain_, planned};
    DC_ASSIGN_OR_RETURN(ir::Step step, steps_.made(candidate));
    const PlannedMemory& budget = options_.memory();
    if (!budget) return step;
    DC_ASSIGN_OR_RETURN(const std::optional<Bytes> arena, steps_.arena_if_too_large(candidate));
    if (!arena) return step;
    excess_ = {arena->v - budget->v, live_bytes(step, cost_) <= budget->v};
    return Status(base::ErrorKind::OutOfMemory, "DC7010",
                  "the plan takes " + std::to_string(arena->v) + " bytes");
  }
  const std::optional<Excess>& excess() const { return excess_; }
  bool may_fit_for_less() const {
    const Result<int64_t> live = steps_.least_live(chain_);
    return !live.ok() || *live <= options_.memory()->v;
  }
  std::optional<int64_t> smallest() {
    const std::optional<SmallestPlan>& found = smallest_.of(chain_);
    return found ? std::optional(found->bytes) : std::nullopt;
  }
  Result<ir::Step> run_smallest() { return steps_.made({chain_, smallest_.of(chain_)->planned}); }

 private:
  const passes::Chain& chain_;
  const passes::Options& options_;
  const cost::CostModel& cost_;
  ScheduledSteps& steps_;
  SmallestPlans& smallest_;
  std::optional<Excess> excess_;
};

class ChainTable {
 public:
  ChainTable(const ir::Step& step, passes::Options options, const cost::CostModel& cost)
      : options_(std::move(options)),
        cost_(cost),
        steps_(step, options_, cost),
        smallest_(steps_, cost) {}

  std::string answer(int64_t budget, const std::string& text) {
    options_.budgets[ir::Space::Device] = budget > 0 ? std::optional(Bytes{budget}) : std::nullopt;
    const Result<passes::Chain> chain = passes::parse_passes(text);
    if (!chain.ok()) return error(chain.status());
    ChainCompiler compiler(*chain, options_, cost_, steps_, smallest_);
    const Result<ir::Step> step =
        budget > 0 ? driver::within_budget(compiler, Bytes{budget}) : compiler.run({});
    if (!step.ok()) return error(step.status());
    Result<Bytes> arena = steps_.arena(*step);
    if (arena.ok() && budget > 0 && arena->v > budget)  // as layout::allocate()
      arena = layout::device_arena(*step, cost_, Bytes{budget});
    if (!arena.ok()) return error(arena.status());
    return "{\"exit\": 0, \"step_ns\": " + std::to_string(sim::simulate(*step, cost_).time.v) +
           ", \"arena\": " + std::to_string(arena->v) +
           ", \"peak\": " + std::to_string(live_bytes(*step, cost_)) + "}";
  }

 private:
  static std::string error(const Status& status) {
    std::string line =
        "{\"exit\": " + std::to_string(base::exit_code(status.kind())) + ", \"error\": ";
    base::append_json_string(line, status.to_string());
    return line + "}";
  }

  passes::Options options_;
  const cost::CostModel& cost_;
  ScheduledSteps steps_;
  SmallestPlans smallest_;
};

Result<driver::CompileOptions> read_options(int argc, char** argv) {
  driver::CompileOptions options;
  for (int i = 4; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const auto known = driver::compile_options();
    const auto found = std::find_if(known.begin(), known.end(),
                                    [&](const auto& option) { return option.flag == flag; });
    if (found == known.end())
      return Status(base::ErrorKind::Usage, "DC2812", "there is no option " + flag);
    DC_RETURN_IF_ERROR(found->read(argv[i + 1], options));
  }
  return options;
}

Status run(int argc, char** argv) {
  const auto path = [&](int i) { return argv[i] == std::string("-") ? "" : std::string(argv[i]); };
  driver::CompileRequest request;
  DC_ASSIGN_OR_RETURN(request.options, read_options(argc, argv));
  if (!path(2).empty()) {
    DC_ASSIGN_OR_RETURN(request.profile, profile::read_profile(path(2)));
  }
  DC_ASSIGN_OR_RETURN(const driver::Model model, driver::read_model(path(1), path(3), {}));
  DC_ASSIGN_OR_RETURN(const driver::CompileOptions options, driver::completed(request));
  const ir::Step step = driver::with_options(model.step, options);
  const cost::Costs costs(request.profile, options.threads, options.fused_estimate.network);
  ChainTable table(step, options.passes, costs.model());
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    int64_t budget = 0;
    std::string chain;
    words >> budget >> chain;
    std::puts(table.answer(budget, chain).c_str());
    std::fflush(stdout);
  }
  return {};
}

}  // namespace
}  // namespace dc::search

int main(int argc, char** argv) {
  if (argc < 4)
    return std::fprintf(stderr, "chain_table MODEL PROFILE|- CONFIG|- [--OPTION VALUE ...]\n"), 64;
  const dc::base::Status status = dc::search::run(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return dc::base::exit_code(status.kind());
}
