#include "src/base/text.h"
#include "src/search/auto.h"

namespace dc::search {
namespace {

std::string describe(const EarlierResult& earlier) {
  const std::string plan = "plan " + earlier.plan.substr(0, 12);
  if (!earlier.refused.empty()) return "; could not start from " + plan + ": " + earlier.refused;
  return (earlier.wins ? "; went on from the chain of " : "; the chain of ") + plan +
         ", which takes " + base::format_duration(earlier.time.v) + " here" +
         (earlier.fits ? "" : ", above the budget");
}

}  // namespace

base::Remark describe(const SearchResult& found) {
  const bool once = found.options.reduction_order == passes::ReductionOrder::PerStep;
  const std::string tried = found.all_named ? "" : ", of those that the effort was enough for";
  const std::string against =
      found.named ? " against " + base::format_duration(found.named->time.v) + " of " +
                        found.named->name + ", the best named chain that fits" + tried
                  : "; no named chain fits" + tried;
  std::string text = "simulated " + std::to_string(found.simulated) + " schedules" +
                     (found.cut_short ? ", cut short by --search-time" : "") + ": " +
                     base::format_duration(found.time.v) + against +
                     (found.bound.v > 0 ? "; bound " + base::format_duration(found.bound.v) : "") +
                     (found.refused.empty() ? ""
                                            : "; left out " + std::to_string(found.refused.size()) +
                                                  " schedules, because of bugs in dcc") +
                     (found.earlier ? describe(*found.earlier) : "") + "; reduction order " +
                     (once ? "per-step" : "per-micro-batch") + "; chain " +
                     passes::print(found.chain);
  base::Remark remark{"auto",
                      "chain-chosen",
                      {},
                      {{"simulated", found.simulated},
                       {"step_ns", found.time.v},
                       {"bound_ns", found.bound.v},
                       {"left_out", static_cast<int64_t>(found.refused.size())},
                       {"cut_short", found.cut_short ? 1 : 0}},
                      text};
  if (found.named) remark.numbers.push_back({"named_step_ns", found.named->time.v});
  if (found.earlier && found.earlier->refused.empty())
    remark.numbers.push_back({"earlier_step_ns", found.earlier->time.v});
  return remark;
}

}  // namespace dc::search
