#include "src/fusion/random_fusion.h"

namespace dc::fusion {

RandomFusion::RandomFusion(const Problem& problem) {
  for (size_t i = 0; i < problem.kernels.size(); ++i) {
    if (problem.kernels[i].kind >= 0) fusible_.push_back(static_cast<int32_t>(i));
  }
}

bool RandomFusion::fuse(Draft& draft, Draws& draws, bool duplicate) const {
  if (fusible_.empty()) return false;
  const int32_t kernel = fusible_[draws.below(fusible_.size())];
  const int32_t later = draft.owner(kernel);
  if (later < 0) return false;
  const Problem& problem = draft.problem();
  std::vector<int32_t> before = draft.read_from(later);
  std::erase_if(before, [&](int32_t group) {
    const Group& other = *draft.groups()[static_cast<size_t>(group)];
    return problem.kernel(other.members.front()).kind != problem.kernel(kernel).kind;
  });
  if (before.empty()) return false;
  return draft.fuse(before[draws.below(before.size())], later, duplicate);
}

void fuse_at_random(Draft& draft, uint64_t seed) {
  const RandomFusion random(draft.problem());
  Draws draws(seed);
  // Twice as many tries as kernels leave hardly a fusion that is allowed.
  const size_t tries = 1 + draws.below(2 * random.fusible() + 1);
  for (size_t i = 0; i < tries; ++i) random.fuse(draft, draws, draws.below(4) == 0);
}

}  // namespace dc::fusion
