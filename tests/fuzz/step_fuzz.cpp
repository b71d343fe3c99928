// Fuzz target: arbitrary text as a .dcir file. What parses prints and parses again alike; an
// imported step that the verifier accepts goes through the pipeline or is refused in words.
#include <cstdlib>

#include "src/cost/analytic.h"
#include "src/ir/step.h"
#include "src/passes/pass_manager.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

using namespace dc;  // NOLINT

void run_pipeline(ir::Step step) {
  static const cost::AnalyticCost costs(1);
  passes::Chain chain;
  for (const passes::Pass& pass : passes::all_passes()) {
    if (!pass.conflicts.empty()) continue;
    std::optional<int64_t> argument;
    if (pass.name == "shard-parameters") argument = static_cast<int64_t>(step.state.size() % 4);
    if (pass.name == "split-by-host") {
      const int world = step.mesh.world();
      if (world < 4 || world % 2 != 0) continue;
      argument = world / 2;
    }
    chain.push_back({&pass, argument});
  }
  passes::Options options;
  options.recompute =
      step.inputs.size() % 2 == 0 ? passes::Recompute::Full : passes::Recompute::Auto;
  if (options.recompute == passes::Recompute::Auto)
    options.budgets[ir::Space::Device] = base::Bytes{4096};
  std::vector<passes::Remark> remarks;
  passes::PassContext context{costs, options, remarks};
  const auto change = passes::run_passes(step, chain, context);
  if (change.ok()) {
    if (ir::print(step).empty()) std::abort();
  } else if (change.status().to_string().empty()) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto step = ir::parse({reinterpret_cast<const char*>(data), size});
  if (!step.ok()) {
    if (step.status().to_string().empty()) std::abort();
    return 0;
  }
  const std::string text = ir::print(*step);
  const auto again = ir::parse(text);
  if (!again.ok() || ir::print(*again) != text) std::abort();
  const bool sound = ir::verify(*step, step->stage).ok();
  if (sound && step->stage == ir::Stage::Imported) run_pipeline(std::move(*step));
  return 0;
}
