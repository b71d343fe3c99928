// Copies between regions of tensors, fills, triangles of matrices, counts.
#pragma once

#include "runtime/kernel/cuda/kernel_words.h"
#include "runtime/kernel/cuda/kernels/copy_parameters.h"
#include "runtime/kernel/scalar/elements.h"

namespace dc::runtime::kernel::cuda {

// All bits are ones: NaN in every floating type.
template <typename Word>
inline Word no_element() {
  if constexpr (sizeof(Word) == 1) {
    return scalar::bit_cast<Word>(static_cast<scalar::uint8_t>(-1));
  } else if constexpr (sizeof(Word) == 2) {
    return scalar::bit_cast<Word>(static_cast<scalar::uint16_t>(-1));
  } else if constexpr (sizeof(Word) == 4) {
    return scalar::bit_cast<Word>(static_cast<scalar::uint32_t>(-1));
  } else if constexpr (sizeof(Word) == 8) {
    return scalar::bit_cast<Word>(static_cast<uint64_t>(-1));
  } else {
    return Word16{static_cast<uint64_t>(-1), static_cast<uint64_t>(-1)};
  }
}

template <typename To, typename From>
inline To element_as(From x) {
  if constexpr (scalar::kSame<To, From>) {
    return x;
  } else {
    return scalar::store<To>(scalar::load(x));
  }
}

template <typename To, typename From>
inline void copy_region(const CopyRegion& parameters) {
  To* to = static_cast<To*>(parameters.to);
  const From* from = static_cast<const From*>(parameters.from);
  for (int64_t i = first_element<int64_t>(); i < parameters.walk.count;
       i += all_threads<int64_t>()) {
    const Places<2> places = places_of(parameters.walk, i);
    to[places.at[0]] = element_as<To>(from[places.at[1]]);
  }
}

template <typename Word>
inline void fill_region(const FillRegion& parameters) {
  Word* to = static_cast<Word*>(parameters.to);
  const Word value = *reinterpret_cast<const Word*>(&parameters.value);
  for (int64_t i = first_element<int64_t>(); i < parameters.walk.count; i += all_threads<int64_t>())
    to[places_of(parameters.walk, i).at[0]] = value;
}

template <typename Word>
inline void triangle(const Triangle& parameters) {
  Word* to = static_cast<Word*>(parameters.to);
  const Word* from = static_cast<const Word*>(parameters.from);
  const int64_t of_matrix = parameters.rows * parameters.columns;
  const int64_t count = parameters.matrices.count * of_matrix;
  for (int64_t i = first_element<int64_t>(); i < count; i += all_threads<int64_t>()) {
    const Places<2> places = places_of(parameters.matrices, i / of_matrix);
    const int64_t row = i % of_matrix / parameters.columns, column = i % parameters.columns;
    const int64_t edge = row + parameters.diagonal;
    const bool keeps = parameters.is_lower ? column <= edge : column >= edge;
    to[places.at[0] + row * parameters.to_row + column * parameters.to_column] =
        keeps ? from[places.at[1] + row * parameters.from_row + column * parameters.from_column]
              : Word{};
  }
}

template <typename T>
inline void arange(const Arange& parameters) {
  T* to = static_cast<T*>(parameters.to);
  constexpr bool kIsFloating = scalar::kFloating<decltype(scalar::load(T{}))>;
  for (int64_t i = first_element<int64_t>(); i < parameters.count; i += all_threads<int64_t>()) {
    T& element = to[i * parameters.stride];
    if constexpr (kIsFloating) {
      element = scalar::store<T>(parameters.floating_start +
                                 parameters.floating_step * static_cast<double>(i));
    } else {
      element = scalar::store<T>(
          static_cast<int64_t>(static_cast<uint64_t>(parameters.start) +
                               static_cast<uint64_t>(parameters.step) * static_cast<uint64_t>(i)));
    }
  }
}

}  // namespace dc::runtime::kernel::cuda
