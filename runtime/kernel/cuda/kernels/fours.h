// Elements in packs of four: one access to memory moves 16 bytes of f32, eight of a 16-bit type,
// and the accesses of neighbouring threads are neighbours.
#pragma once

#include "runtime/kernel/cuda/kernel_words.h"
#include "runtime/kernel/scalar/language.h"

namespace dc::runtime::kernel::cuda {

template <int kValue>
struct Width {
  static constexpr int value = kValue;
};

// element(Width<4>, i) for elements i to i + 3 and element(Width<1>, i) for one, until all of
// `count` had their turn. `in_fours`: every array that it reads or writes begins where four of its
// elements may.
template <typename Element>
inline void for_each_four(scalar::int64_t count, bool in_fours, Element element) {
  const scalar::int64_t fours = in_fours ? count / 4 : 0;
  const auto first = first_element<scalar::int64_t>(), step = all_threads<scalar::int64_t>();
  for (scalar::int64_t four = first; four < fours; four += step) element(Width<4>{}, 4 * four);
  for (scalar::int64_t i = 4 * fours + first; i < count; i += step) element(Width<1>{}, i);
}

}  // namespace dc::runtime::kernel::cuda
