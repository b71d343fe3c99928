// dropout: a mask that depends only on seed, step, micro-batch, rank, op and element, never on the
// order in which anything runs.
//
// Philox 4x32-10 with key = seed and counter = (element / 4, op, step, micro-batch << 16 | rank);
// element % 4 picks the word. An element is kept when the word's upper 24 bits, read as a fraction
// u in [0, 1), are at least p; it is then divided by 1 - p.
#pragma once

#include "runtime/kernel/scalar/elements.h"
#include "runtime/kernel/scalar/philox.h"
#include "src/base/step_scalars.h"

namespace dc::runtime::kernel::scalar {

struct Draws {
  uint64_t key;
  uint32_t op, step, place;  // counter words 1 to 3
};
inline Draws draws_of(const uint64_t* rng, uint32_t op) {
  return {rng[base::kRngSeed], op, static_cast<uint32_t>(rng[base::kRngStep]),
          static_cast<uint32_t>(rng[base::kRngMicroBatch] << 16 | (rng[base::kRngRank] & 0xffff))};
}

// The counters of 4 * kWidth elements from `first` on, a multiple of 4, as random words: that of
// element first + 4 * lane + word is words[word][lane].
template <int kWidth>
inline void draw(const Draws& draws, int64_t first, uint32_t (&words)[4][kWidth]) {
  for (int lane = 0; lane < kWidth; ++lane) {
    words[0][lane] = static_cast<uint32_t>(first / 4) + static_cast<uint32_t>(lane);
    words[1][lane] = draws.op;
    words[2][lane] = draws.step;
    words[3][lane] = draws.place;
  }
  philox_10(words, draws.key);
}
// `threshold` is p in units of 2^-24.
inline bool is_kept(uint32_t word, uint32_t threshold) { return (word >> 8) >= threshold; }

// Multiplying by 0 instead of selecting keeps a NaN visible, as PyTorch does.
template <typename T>
inline T dropped(T x, bool keep, float scale) {
  return store<T>(load(x) * (keep ? scale : 0.0f));
}

}  // namespace dc::runtime::kernel::scalar
