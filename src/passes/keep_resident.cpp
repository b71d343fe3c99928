// keep-resident: a parameter that is gathered several times in a step is gathered once and kept
// whole between its uses, as far as the budget allows (selective unsharding).
//
// Which ones: a knapsack by time saved per byte held, greedily; a parameter that does not fit does
// not stop the next one. A byte counts only where the parameter is not whole anyway, and must fit
// at every such position. Whether a gather saved was hidden anyway is for a search to find out: it
// sets how much may be kept. Kernels and sums stay the same; so do all numbers.
#include <algorithm>

#include "src/base/text.h"
#include "src/passes/pass.h"
#include "src/passes/residency.h"

namespace dc::passes {
namespace {

class Keeper {
 public:
  Keeper(ir::Step& step, const PassContext& context)
      : residency_(step, context.cost), limit_(transient_limit(step, context.options.memory)) {
    if (context.argument) room_ = *context.argument - residency_.kept_bytes();
  }

  // What fits, by time saved per byte.
  std::vector<const ResidencyCandidate*> choose() {
    std::vector<const ResidencyCandidate*> order, chosen;
    for (const ResidencyCandidate& candidate : residency_.candidates()) order.push_back(&candidate);
    std::stable_sort(order.begin(), order.end(),
                     [](const ResidencyCandidate* a, const ResidencyCandidate* b) {
                       return static_cast<double>(a->saved.v) * static_cast<double>(b->bytes) >
                              static_cast<double>(b->saved.v) * static_cast<double>(a->bytes);
                     });
    for (const ResidencyCandidate* candidate : order) {
      if (candidate->bytes > room_ || !fits(*candidate)) continue;
      room_ -= candidate->bytes;
      hold(*candidate);
      chosen.push_back(candidate);
    }
    return chosen;
  }

  void keep(const std::vector<const ResidencyCandidate*>& chosen) { residency_.keep(chosen); }

 private:
  bool fits(const ResidencyCandidate& candidate) {
    if (!limit_) return true;
    bool fits = true;
    residency_.for_each_new_position(candidate, [&](const TimeAxis& axis, int32_t position) {
      fits = fits && axis.bytes[static_cast<size_t>(position)] + candidate.bytes <= *limit_;
    });
    return fits;
  }

  void hold(const ResidencyCandidate& candidate) {
    residency_.for_each_new_position(candidate, [&](TimeAxis& axis, int32_t position) {
      axis.bytes[static_cast<size_t>(position)] += candidate.bytes;
    });
  }

  Residency residency_;
  std::optional<int64_t> limit_;
  int64_t room_ = INT64_MAX;  // bytes that may still be kept
};

}  // namespace

base::Result<Change> keep_resident(ir::Step& step, PassContext& context) {
  Keeper keeper(step, context);
  const std::vector<const ResidencyCandidate*> chosen = keeper.choose();
  if (chosen.empty()) return Change::No;
  base::Nanos saved;
  int64_t held = 0;
  for (const ResidencyCandidate* candidate : chosen) {
    saved += candidate->saved;
    held += candidate->bytes;
  }
  keeper.keep(chosen);
  context.remarks.push_back(
      {"keep-resident",
       std::to_string(chosen.size()) +
           " parameters stay whole between their uses: " + base::format_bytes(held) + " held, " +
           base::format_duration(saved.v) + " of gathers saved per step"});
  return Change::Yes;
}

}  // namespace dc::passes
