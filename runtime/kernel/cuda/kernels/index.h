// index.Tensor, index_put and index_add. Where several choices are one position, the last one
// stays, or all are added in their order. An index that there is not gives NaN where elements are
// read, and where they are written NaN at the first position; of integers it is left out there.
#pragma once

#include "runtime/kernel/cuda/kernels/copies.h"
#include "runtime/kernel/cuda/kernels/index_parameters.h"
#include "runtime/kernel/cuda/kernels/links.h"

namespace dc::runtime::kernel::cuda {

// The first element of a choice in `chosen`; -1 if there is no such position.
inline int64_t chosen_place(const IndexTensors& parameters,
                            const Places<1 + kMostIndices>& choice) {
  int64_t place = 0;
  for (int64_t k = 0; k < parameters.count; ++k) {
    const IndexTensor& tensor = parameters.indices[k];
    const int64_t at = choice.at[1 + k];
    const int64_t index = tensor.is_long ? static_cast<const int64_t*>(tensor.data)[at]
                                         : int64_t{static_cast<const int32_t*>(tensor.data)[at]};
    if (index < -tensor.size || index >= tensor.size) return -1;
    place += (index < 0 ? index + tensor.size : index) * tensor.step;
  }
  return place;
}

template <typename Word>
inline void index_read(const IndexTensors& parameters) {
  const Word* chosen = static_cast<const Word*>(parameters.chosen);
  Word* other = static_cast<Word*>(parameters.other);
  const int64_t parts = parameters.part.count, count = parameters.choices.count * parts;
  for (int64_t i = first_element<int64_t>(); i < count; i += all_threads<int64_t>()) {
    const int64_t number = i / parts;
    const auto choice = places_of(parameters.choices, number);
    const auto part = places_of(parameters.part, i - number * parts);
    const int64_t place = chosen_place(parameters, choice);
    other[choice.at[0] + part.at[1]] = place < 0 ? no_element<Word>() : chosen[place + part.at[0]];
  }
}

inline void index_links(const IndexTensors& parameters) {
  find_links(parameters.links, parameters.choices.count, [&](int64_t choice) {
    const int64_t place = chosen_place(parameters, places_of(parameters.choices, choice));
    return place < 0 && parameters.has_nan ? 0 : place;
  });
}

// join(element, another): what it becomes. A thread has one element of the first choice of a
// position.
template <typename T, typename Join>
inline void index_write(const IndexTensors& parameters, Join join) {
  T* chosen = static_cast<T*>(parameters.chosen);
  const T* other = static_cast<const T*>(parameters.other);
  const int64_t choices = parameters.choices.count, parts = parameters.part.count;
  for (int64_t i = first_element<int64_t>(); i < choices * parts; i += all_threads<int64_t>()) {
    const int64_t first = i / parts;
    if (!is_first_of_key(parameters.links, first)) continue;
    const auto part = places_of(parameters.part, i - first * parts);
    const int64_t found = chosen_place(parameters, places_of(parameters.choices, first)),
                  place = found < 0 ? 0 : found;
    T element = chosen[place + part.at[0]];
    bool all_exist = true;
    for (int64_t choice = first; choice < choices; choice = next_place(parameters.links, choice)) {
      const auto at = places_of(parameters.choices, choice);
      element = join(element, other[at.at[0] + part.at[1]]);
      all_exist = all_exist && (place > 0 || chosen_place(parameters, at) == 0);
    }
    chosen[place + part.at[0]] = all_exist ? element : no_element<T>();
  }
}
template <typename Word>
inline void index_put(const IndexTensors& parameters) {
  index_write<Word>(parameters, [](Word, Word last) { return last; });
}
// Rounded to the elements' type each time.
template <typename T>
inline void index_add(const IndexTensors& parameters) {
  using C = decltype(scalar::load(T{}));
  index_write<T>(parameters, [&](T element, T added) {
    if constexpr (scalar::kFloating<C>) {
      const C factor = static_cast<C>(parameters.factor), more = scalar::load(added);
      return scalar::store<T>(scalar::load(element) + (factor == C{1} ? more : more * factor));
    } else {
      return scalar::store<T>(static_cast<int64_t>(scalar::load(element)) +
                              static_cast<int64_t>(scalar::load(added)) *
                                  static_cast<int64_t>(parameters.factor));
    }
  });
}

}  // namespace dc::runtime::kernel::cuda
