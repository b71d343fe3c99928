// An order of equals in which the first k, for every k, lie evenly among all: the bit reversal of
// the index.
#pragma once

#include <bit>
#include <cstddef>
#include <vector>

namespace dc::schedule {

// The indices from 0 to `count` - 1.
inline std::vector<size_t> evenly_spread(size_t count) {
  std::vector<size_t> order;
  const int bits = count < 2 ? 0 : static_cast<int>(std::bit_width(count - 1));
  for (size_t i = 0; count > 0 && i < size_t{1} << bits; ++i) {
    size_t reversed = 0;
    for (int bit = 0; bit < bits; ++bit) reversed |= (i >> bit & 1) << (bits - 1 - bit);
    if (reversed < count) order.push_back(reversed);
  }
  return order;
}

}  // namespace dc::schedule
