// Fuzz target: arbitrary bytes as prof.json. What is accepted is written and read again alike, and
// its costs can be asked for.
#include <cstdlib>

#include "src/cost/analytic.h"
#include "src/cost/profiled.h"
#include "src/ir/step.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/src/ir/sample_steps.h"

namespace {

using namespace dc;  // NOLINT

void ask_everything(const profile::Profile& profile) {
  static const cost::AnalyticCost fallback(1);
  static const ir::Step step = ir::parse(ir::kScheduled).value();
  const cost::ProfiledCost costs(profile, fallback);
  const ir::Graph& graph = step.programs[0].graph;
  for (const ir::NodeId id : graph.order()) {
    (void)costs.compute(graph, graph.node(id));
    (void)costs.scratch(graph, graph.node(id));
  }
  for (const int64_t bytes : {int64_t{0}, int64_t{1} << 10, int64_t{1} << 40}) {
    (void)costs.collective(cost::Collective::AllGather, base::Bytes{bytes}, 2);
    (void)costs.copy(base::Bytes{bytes}, ir::Space::Device, ir::Space::Host);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto profile = profile::parse_profile(text, "prof.json");
  if (!profile.ok()) {
    if (profile.status().to_string().empty()) std::abort();
    return 0;
  }
  const std::string written = profile::to_json(profile->measurements);
  const auto again = profile::parse_profile(written, "prof.json");
  if (!again.ok() || profile::to_json(again->measurements) != written) std::abort();
  ask_everything(*profile);
  return 0;
}
