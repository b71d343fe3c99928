// Weights that are drawn: a thread computes the four elements that one counter draws for.
#pragma once

#include "runtime/kernel/cuda/kernel_words.h"
#include "runtime/kernel/cuda/kernels/drawing_parameters.h"
#include "runtime/kernel/scalar/elements.h"

namespace dc::runtime::kernel::cuda {

template <typename Through, typename To>
inline void draw(const Draw& parameters) {
  const scalar::Drawing& what = parameters.what;
  const int64_t first = parameters.first, end = first + parameters.count;
  const int64_t begin = first / scalar::kDrawGroup * scalar::kDrawLanes;
  const int64_t counters = counters_of(first, parameters.count);
  To* out = static_cast<To*>(parameters.out);
  for (int64_t i = first_element<int64_t>(); i < counters; i += all_threads<int64_t>()) {
    const int64_t counter = begin + i;
    uint32_t words[4][1];
    float numbers[4][1];
    scalar::draw_words(what.key, static_cast<uint64_t>(counter), words);
    scalar::draw_numbers(what, words, numbers);
    for (int word = 0; word < 4; ++word) {
      const int64_t element = counter / scalar::kDrawLanes * scalar::kDrawGroup +
                              word * scalar::kDrawLanes + counter % scalar::kDrawLanes;
      if (element < first || element >= end) continue;
      const bool is_zero = element >= what.zeros_begin && element < what.zeros_end;
      const float number = is_zero ? 0.0f : numbers[word][0];
      out[element - first] = scalar::store<To>(scalar::load(scalar::store<Through>(number)));
    }
  }
}

}  // namespace dc::runtime::kernel::cuda
