// embedding and the gradient of its table.
//
// The gradient of a row of the table is summed by one thread for each column, in the order of its
// places, which links.h finds. An index that there is not gives NaN, which ends the run.
#pragma once

#include "runtime/kernel/cuda/kernels/copies.h"
#include "runtime/kernel/cuda/kernels/index_parameters.h"
#include "runtime/kernel/cuda/kernels/links.h"

namespace dc::runtime::kernel::cuda {

template <typename Index, typename Word>
inline void embedding(const Embedding& parameters) {
  const Word* table = static_cast<const Word*>(parameters.table);
  Word* to = static_cast<Word*>(parameters.to);
  const int64_t count = parameters.places.count * parameters.columns;
  for (int64_t i = first_element<int64_t>(); i < count; i += all_threads<int64_t>()) {
    const int64_t place = i / parameters.columns, column = i - place * parameters.columns;
    const Places<2> at = places_of(parameters.places, place);
    const int64_t index = static_cast<const Index*>(parameters.indices)[at.at[0]];
    to[at.at[1] + column * parameters.to_stride] =
        index >= 0 && index < parameters.rows
            ? table[index * parameters.row_stride + column * parameters.stride]
            : no_element<Word>();
  }
}

// -1 where the gradient of a place is left out.
template <typename Index>
inline int64_t index_of_place(const EmbeddingBackward& parameters, int64_t place) {
  const int64_t index =
      static_cast<const Index*>(parameters.indices)[places_of(parameters.places, place).at[0]];
  const bool counts = index >= 0 && index < parameters.rows && index != parameters.padding;
  return counts ? index : -1;
}
template <typename Index>
inline void embedding_links(const EmbeddingBackward& parameters) {
  find_links(parameters.links, parameters.places.count,
             [&](int64_t place) { return index_of_place<Index>(parameters, place); });
}

// A thread for each column of each place; those of the first place of a row have something to do.
template <typename Index, typename To, typename G>
inline void embedding_gradients(const EmbeddingBackward& parameters) {
  const G* g = static_cast<const G*>(parameters.g);
  To* to = static_cast<To*>(parameters.to);
  const int64_t places = parameters.places.count, count = places * parameters.columns;
  for (int64_t i = first_element<int64_t>(); i < count; i += all_threads<int64_t>()) {
    const int64_t first = i / parameters.columns, column = i - first * parameters.columns;
    if (!is_first_of_key(parameters.links, first)) continue;
    float sum = 0;
    int64_t found = 0;
    for (int64_t place = first; place < places;) {
      const int64_t row = places_of(parameters.places, place).at[1];
      sum += scalar::load(g[row + column * parameters.g_stride]);
      ++found;
      place = next_place(parameters.links, place);
    }
    if (parameters.by_frequency) sum /= static_cast<float>(found);
    const int64_t own = index_of_place<Index>(parameters, first);
    to[own * parameters.row_stride + column * parameters.to_stride] = scalar::store<To>(sum);
  }
}

}  // namespace dc::runtime::kernel::cuda
