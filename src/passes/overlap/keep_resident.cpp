// keep-resident: a parameter that is gathered several times in a step is gathered once and kept
// whole between its uses, as far as the budget allows (selective unsharding).
//
// Which ones: a knapsack by time saved per byte held, greedily; a parameter that does not fit does
// not stop the next one. A byte counts only where the parameter is not whole anyway, and must fit
// at every such position. Whether a gather saved was hidden anyway is for a search to find out: it
// sets how much may be kept. Kernels and sums stay the same; so do all numbers.
#include <algorithm>
#include <span>

#include "src/base/text.h"
#include "src/passes/pass.h"
#include "src/schedule/evenly_spread.h"
#include "src/schedule/residency.h"

namespace dc::passes {
namespace {

class ResidencySelection {
 public:
  ResidencySelection(ir::Step& step, const PassContext& context)
      : residency_(step, context.cost),
        limit_(schedule::transient_limit(step, context.options.memory())) {
    if (context.argument) room_ = *context.argument - residency_.kept_bytes();
  }

  // What fits, by time saved per byte.
  std::vector<const schedule::ResidencyCandidate*> choose() {
    std::vector<const schedule::ResidencyCandidate*> order, chosen;
    for (const schedule::ResidencyCandidate& candidate : residency_.candidates())
      order.push_back(&candidate);
    std::stable_sort(
        order.begin(), order.end(),
        [](const schedule::ResidencyCandidate* a, const schedule::ResidencyCandidate* b) {
          return static_cast<double>(a->saved.v) * static_cast<double>(b->bytes) >
                 static_cast<double>(b->saved.v) * static_cast<double>(a->bytes);
        });
    for (size_t first = 0; first < order.size();) {
      size_t last = first + 1;
      while (last < order.size() && order[last]->bytes == order[first]->bytes &&
             order[last]->saved == order[first]->saved)
        ++last;
      interleave(std::span(order).subspan(first, last - first));
      first = last;
    }
    for (const schedule::ResidencyCandidate* candidate : order) {
      if (candidate->bytes > room_ || !fits(*candidate)) continue;
      room_ -= candidate->bytes;
      hold(*candidate);
      chosen.push_back(candidate);
    }
    return chosen;
  }

  void keep(const std::vector<const schedule::ResidencyCandidate*>& chosen) {
    residency_.keep(chosen);
  }

 private:
  // Orders candidates of equal value so that the first k, for every k, lie evenly over the
  // program. Then the remaining gathers do so too, and the link always has work.
  static void interleave(std::span<const schedule::ResidencyCandidate*> equals) {
    const std::vector<const schedule::ResidencyCandidate*> given(equals.begin(), equals.end());
    size_t next = 0;
    for (const size_t i : schedule::evenly_spread(given.size())) equals[next++] = given[i];
  }

  bool fits(const schedule::ResidencyCandidate& candidate) {
    if (!limit_) return true;
    bool fits = true;
    residency_.for_each_new_position(
        candidate, [&](const schedule::TimeAxis& axis, int32_t position) {
          fits = fits && axis.bytes[static_cast<size_t>(position)] + candidate.bytes <= *limit_;
        });
    return fits;
  }

  void hold(const schedule::ResidencyCandidate& candidate) {
    residency_.for_each_new_position(candidate, [&](schedule::TimeAxis& axis, int32_t position) {
      axis.bytes[static_cast<size_t>(position)] += candidate.bytes;
    });
  }

  schedule::Residency residency_;
  std::optional<int64_t> limit_;
  int64_t room_ = INT64_MAX;  // bytes that may still be kept
};

}  // namespace

base::Result<Change> keep_resident(ir::Step& step, const PassContext& context) {
  ResidencySelection keeper(step, context);
  const std::vector<const schedule::ResidencyCandidate*> chosen = keeper.choose();
  if (chosen.empty()) return Change::No;
  base::Nanos saved;
  int64_t held = 0;
  for (const schedule::ResidencyCandidate* candidate : chosen) {
    saved += candidate->saved;
    held += candidate->bytes;
  }
  keeper.keep(chosen);
  context.remarks.push_back(
      {"keep-resident",
       "parameters-resident",
       parameters_of(step, chosen),
       {{"parameters", static_cast<int64_t>(chosen.size())},
        {"held_bytes", held},
        {"saved_ns", saved.v}},
       std::to_string(chosen.size()) +
           " parameters stay whole between their uses: " + base::format_bytes(held) + " held, " +
           base::format_duration(saved.v) + " of gathers saved per step"});
  return Change::Yes;
}

}  // namespace dc::passes
