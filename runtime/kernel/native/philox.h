// Philox 4x32-10 (runtime/kernel/scalar/philox.h), of one counter too.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/kernel/scalar/philox.h"

namespace dc::runtime::kernel::native {

using scalar::philox_10;

inline std::array<uint32_t, 4> philox_10(const std::array<uint32_t, 4>& counter, uint64_t key) {
  uint32_t words[4][1] = {{counter[0]}, {counter[1]}, {counter[2]}, {counter[3]}};
  philox_10(words, key);
  return {words[0][0], words[1][0], words[2][0], words[3][0]};
}

}  // namespace dc::runtime::kernel::native
