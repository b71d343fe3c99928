// Places of elements in tensors of any strides: the dims that the host has joined, and the way from
// the number of an element to its places.
#pragma once

#include "runtime/kernel/scalar/language.h"

namespace dc::runtime::kernel::cuda {

using scalar::int64_t, scalar::uint32_t;

inline constexpr int kMostWalkDims = 8;

// Several tensors of one shape. Strides are in elements.
template <int kTensors>
struct Walk {
  int64_t count;  // elements
  int64_t dims;   // outermost first; none for a single element
  int64_t sizes[kMostWalkDims];
  int64_t strides[kMostWalkDims][kTensors];
};
template <int kTensors>
struct Places {
  int64_t at[kTensors];
};

// Divisions of 32 bits are much cheaper than those of 64.
template <typename Number, int kTensors>
inline void find_places(const Walk<kTensors>& walk, Number rest, Places<kTensors>& places) {
  for (int64_t d = walk.dims; d-- > 0;) {
    const auto size = static_cast<Number>(walk.sizes[d]);
    const Number next = d == 0 ? 0 : rest / size;
    const auto own = static_cast<int64_t>(rest - next * size);
    for (int t = 0; t < kTensors; ++t) places.at[t] += own * walk.strides[d][t];
    rest = next;
  }
}
template <int kTensors>
inline Places<kTensors> places_of(const Walk<kTensors>& walk, int64_t element) {
  Places<kTensors> places{};
  constexpr int64_t kFew = int64_t{1} << 31;
  if (walk.count < kFew) {
    find_places(walk, static_cast<uint32_t>(element), places);
  } else {
    find_places(walk, element, places);
  }
  return places;
}

// Rows along some dims, for every position of the others.
template <int kTensors>
struct RowWalk {
  Walk<kTensors> rows;  // their first elements
  int64_t length;
  int64_t strides[kTensors];  // from one element of a row to the next
};

}  // namespace dc::runtime::kernel::cuda
