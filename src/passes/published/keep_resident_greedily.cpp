// keep-resident-greedily: selective unsharding as DeepCompile does it (arXiv 2504.09983; DeepSpeed,
// deepspeed/compile/passes/selective_gather.py). The baseline of keep-resident.
//
// Headroom = nine tenths of the budget less the largest peak. Parameters by gather time per byte,
// forward and backward together; the first that does not fit ends the list. Every byte counts as if
// held throughout; whether prefetch hides the gather anyway is ignored. Without a budget all
// are kept.
#include "src/analysis/memory.h"
#include "src/base/text.h"
#include "src/passes/pass.h"
#include "src/passes/published/published_rules.h"
#include "src/schedule/residency.h"

namespace dc::passes {

base::Result<Change> keep_resident_greedily(ir::Step& step, const PassContext& context) {
  schedule::Residency residency(step, context.cost);
  std::vector<published::Parameter> parameters;
  for (const schedule::ResidencyCandidate& candidate : residency.candidates())
    parameters.push_back({candidate.time, candidate.bytes});
  int64_t headroom = INT64_MAX;
  if (context.options.memory()) {
    const auto scratch = [&](const ir::Graph& graph, const ir::Node& node) {
      return context.cost.scratch(graph, node).bytes;
    };
    const int64_t peak = analysis::peak_memory(step, scratch).live.v;
    headroom = published::headroom(published::usable(context.options.memory()->v), peak);
  }
  std::vector<const schedule::ResidencyCandidate*> chosen;
  base::Bytes held;
  for (const size_t index : published::keep_resident(parameters, headroom)) {
    chosen.push_back(&residency.candidates()[index]);
    held.v += chosen.back()->bytes;
  }
  if (chosen.empty()) return Change::No;
  residency.keep(chosen);
  std::vector<base::RemarkNumber> numbers = {{"parameters", static_cast<int64_t>(chosen.size())},
                                             {"held_bytes", held.v}};
  if (context.options.memory()) numbers.push_back({"headroom_bytes", headroom});
  context.remarks.push_back(
      {"keep-resident-greedily", "parameters-resident", parameters_of(step, chosen),
       std::move(numbers),
       std::to_string(chosen.size()) + " parameters stay whole, " + base::format_bytes(held.v) +
           " of " +
           (context.options.memory() ? base::format_bytes(headroom) : std::string("unlimited")) +
           " headroom"});
  return Change::Yes;
}

}  // namespace dc::passes
