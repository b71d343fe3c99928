// Numbers whose type is known when a kernel runs.
#pragma once

#include "runtime/kernel/cuda/kernels/row_parameters.h"
#include "runtime/kernel/scalar/elements.h"

namespace dc::runtime::kernel::cuda {

// What elements of type T are computed with.
template <typename T>
using Computed = decltype(scalar::load(T{}));

template <typename C>
inline C number_at(const Numbers& numbers, int64_t place) {
  switch (numbers.type) {
    case Numbers::kBF16:
      return static_cast<C>(scalar::load(static_cast<const scalar::BF16*>(numbers.data)[place]));
    case Numbers::kF16:
      return static_cast<C>(scalar::load(static_cast<const scalar::F16*>(numbers.data)[place]));
    case Numbers::kF64:
      return static_cast<C>(static_cast<const double*>(numbers.data)[place]);
    default:
      return static_cast<C>(static_cast<const float*>(numbers.data)[place]);
  }
}

template <typename C>
inline void put_number(const Numbers& numbers, int64_t place, C value) {
  if (numbers.data == nullptr) return;
  switch (numbers.type) {
    case Numbers::kBF16:
      static_cast<scalar::BF16*>(numbers.data)[place] = scalar::store<scalar::BF16>(value);
      return;
    case Numbers::kF16:
      static_cast<scalar::F16*>(numbers.data)[place] = scalar::store<scalar::F16>(value);
      return;
    case Numbers::kF64:
      static_cast<double*>(numbers.data)[place] = static_cast<double>(value);
      return;
    default:
      static_cast<float*>(numbers.data)[place] = static_cast<float>(value);
  }
}

}  // namespace dc::runtime::kernel::cuda
