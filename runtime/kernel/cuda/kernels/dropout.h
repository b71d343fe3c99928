// dropout: a thread computes the four elements that one counter draws for.
#pragma once

#include "runtime/kernel/cuda/kernel_words.h"
#include "runtime/kernel/cuda/kernels/parameters.h"
#include "runtime/kernel/scalar/dropout.h"

namespace dc::runtime::kernel::cuda {

template <typename T>
inline void dropout(const Dropout& parameters) {
  const scalar::Draws draws = scalar::draws_of(parameters.rng, parameters.op);
  const T* x = static_cast<const T*>(parameters.x);
  T* y = static_cast<T*>(parameters.y);
  for (int64_t i = first_element<int64_t>(); i < (parameters.count + 3) / 4;
       i += all_threads<int64_t>()) {
    uint32_t words[4][1];
    scalar::draw(draws, 4 * i, words);
    for (int word = 0; word < 4; ++word) {
      const int64_t element = 4 * i + word;
      if (element >= parameters.count) return;
      const bool keep = scalar::is_kept(words[word][0], parameters.threshold);
      y[element] = scalar::dropped(x[element], keep, parameters.scale);
      if (parameters.mask != nullptr) parameters.mask[element] = keep ? 1 : 0;
    }
  }
}

}  // namespace dc::runtime::kernel::cuda
