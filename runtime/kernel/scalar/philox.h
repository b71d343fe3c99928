// Philox 4x32-10: a counter-based random generator (Salmon et al., "Parallel random numbers: as
// easy as 1, 2, 3").
#pragma once

#include "runtime/kernel/scalar/language.h"

namespace dc::runtime::kernel::scalar {

// kWidth counters that differ only in word 0 (consecutive, modulo 2^32), turned into random words
// in place: words[j][lane].
template <int kWidth>
inline void philox_10(uint32_t (&words)[4][kWidth], uint64_t key) {
  uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int lane = 0; lane < kWidth; ++lane) {
      const uint64_t product0 = uint64_t{0xD2511F53} * words[0][lane];
      const uint64_t product1 = uint64_t{0xCD9E8D57} * words[2][lane];
      const uint32_t word0 = static_cast<uint32_t>(product1 >> 32) ^ words[1][lane] ^ key0;
      const uint32_t word2 = static_cast<uint32_t>(product0 >> 32) ^ words[3][lane] ^ key1;
      words[0][lane] = word0;
      words[1][lane] = static_cast<uint32_t>(product1);
      words[2][lane] = word2;
      words[3][lane] = static_cast<uint32_t>(product0);
    }
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
}

}  // namespace dc::runtime::kernel::scalar
