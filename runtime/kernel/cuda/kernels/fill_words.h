// Words of memory become one number.
#pragma once

#include "runtime/device/cuda/fill_words.h"
#include "runtime/kernel/cuda/kernel_words.h"

namespace dc::runtime::kernel::cuda {

using device::cuda::FillWords;

inline void fill_words(const FillWords& parameters) {
  using Index = unsigned long long;
  for (auto i = first_element<Index>(); i < parameters.count; i += all_threads<Index>())
    parameters.to[i] = parameters.value;
}

}  // namespace dc::runtime::kernel::cuda
