// gather, index_select, scatter and scatter_add along one dim. An index that there is not gives
// NaN where elements are gathered, and where they are scattered a NaN at the beginning of its line;
// of integers it is left out there.
#pragma once

#include "runtime/kernel/cuda/kernels/copies.h"
#include "runtime/kernel/cuda/kernels/index_parameters.h"

namespace dc::runtime::kernel::cuda {

template <typename Index, typename Word>
inline void gather(const Gather& parameters) {
  const Word* chosen = static_cast<const Word*>(parameters.chosen);
  Word* to = static_cast<Word*>(parameters.to);
  for (int64_t i = first_element<int64_t>(); i < parameters.walk.count;
       i += all_threads<int64_t>()) {
    const Places<3> at = places_of(parameters.walk, i);
    const int64_t index = static_cast<const Index*>(parameters.indices)[at.at[0]];
    to[at.at[2]] = index >= 0 && index < parameters.size
                       ? chosen[at.at[1] + index * parameters.stride]
                       : no_element<Word>();
  }
}

// put(element of `to`, what is scattered), in the order of a line's indices. A thread takes a line,
// so equal indices meet in one thread.
template <typename Index, typename T, typename Put>
inline void scatter_lines(const Scatter& parameters, Put put) {
  T* to = static_cast<T*>(parameters.to);
  const T* from = static_cast<const T*>(parameters.from);
  const T value = *reinterpret_cast<const T*>(&parameters.value);
  const RowWalk<3>& lines = parameters.lines;
  for (int64_t line = first_element<int64_t>(); line < lines.rows.count;
       line += all_threads<int64_t>()) {
    const Places<3> at = places_of(lines.rows, line);
    const Index* indices = static_cast<const Index*>(parameters.indices) + at.at[0];
    bool all_exist = true;
    for (int64_t k = 0; k < lines.length; ++k) {
      const int64_t index = indices[k * lines.strides[0]];
      if (index < 0 || index >= parameters.size) {
        all_exist = false;
        continue;
      }
      put(to[at.at[1] + index * lines.strides[1]],
          from == nullptr ? value : from[at.at[2] + k * lines.strides[2]]);
    }
    if (!all_exist && parameters.is_floating && parameters.size > 0) to[at.at[1]] = no_element<T>();
  }
}

template <typename Index, typename Word>
inline void scatter(const Scatter& parameters) {
  scatter_lines<Index, Word>(parameters, [](Word& to, const Word& from) { to = from; });
}

// In f64 or i64, rounded to the elements' type each time.
template <typename Index, typename T>
inline void scatter_add(const Scatter& parameters) {
  scatter_lines<Index, T>(parameters, [](T& to, const T& from) {
    if constexpr (scalar::kFloating<decltype(scalar::load(T{}))>) {
      to = scalar::store<T>(static_cast<double>(scalar::load(to)) +
                            static_cast<double>(scalar::load(from)));
    } else {
      to = scalar::store<T>(static_cast<int64_t>(scalar::load(to)) +
                            static_cast<int64_t>(scalar::load(from)));
    }
  });
}

}  // namespace dc::runtime::kernel::cuda
