// Fusions drawn at random: the changes that DisCo's search tries, and the samples by which the time
// of fused kernels is learned (arXiv 2209.12769, section 5: an operator drawn at random is fused
// with one before it, again and again).
#pragma once

#include <cstdint>
#include <vector>

#include "src/fusion/draft.h"
#include "src/fusion/draws.h"

namespace dc::fusion {

class RandomFusion {
 public:
  explicit RandomFusion(const Problem& problem);
  // Fuses the group of a kernel with one of its kind that it reads from, both drawn. False, with
  // nothing changed, if that is not allowed or there is none.
  bool fuse(Draft& draft, Draws& draws, bool duplicate) const;
  size_t fusible() const { return fusible_.size(); }

 private:
  std::vector<int32_t> fusible_;  // kernels
};

// A draft as a sample: few fusions or many, one in four of a copy. Equal seeds give equal drafts.
void fuse_at_random(Draft& draft, uint64_t seed);

}  // namespace dc::fusion
