// Numbers that operands are filled with. Private to this folder.
#pragma once

#include <cstdint>

namespace dc::runtime::measure {

// Cheap, repeatable numbers in [-1, 1): kernels must not meet denormals or equal rows only.
inline double pseudo_random(int64_t index) {
  const uint64_t mixed = (static_cast<uint64_t>(index) + 1) * 0x9E3779B97F4A7C15ull;
  return static_cast<double>(static_cast<int64_t>(mixed >> 11)) * 0x1p-52 - 1.0;
}

}  // namespace dc::runtime::measure
