// Filling of elements that lie next to each other.
#pragma once

#include <cstdint>

#include "runtime/kernel/native/vector_clones.h"

namespace dc::runtime::kernel::native {

template <typename T>
DC_VECTOR_CLONES void fill_dense(T* to, T value, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = value;
}

}  // namespace dc::runtime::kernel::native
