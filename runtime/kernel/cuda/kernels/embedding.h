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

// A thread for some columns of each place; those of the first place of a row have something to do.
template <typename Index, typename To, typename G, typename Number>
inline void embedding_gradients_by(const EmbeddingBackward& parameters) {
  constexpr int kColumns = kColumnsOfGradient;
  const G* g = static_cast<const G*>(parameters.g);
  To* to = static_cast<To*>(parameters.to);
  const int64_t places = parameters.places.count, columns = parameters.columns;
  const auto groups = static_cast<Number>((columns + kColumns - 1) / kColumns),
             count = static_cast<Number>(places) * groups;
  for (auto i = first_element<Number>(); i < count; i += all_threads<Number>()) {
    const Number first = i / groups, group = i - first * groups;
    if (!is_first_of_key(parameters.links, first)) continue;
    // Neighbours of a column are of neighbouring threads.
    const auto for_each_column = [&](auto f) {
      for (int k = 0; k < kColumns; ++k) {
        const int64_t column = static_cast<int64_t>(group) + k * static_cast<int64_t>(groups);
        if (column < columns) f(k, column);
      }
    };
    float sums[kColumns] = {};
    int64_t found = 0;
    for (int64_t place = first; place < places; place = next_place(parameters.links, place)) {
      const G* row = g + places_of(parameters.places, place).at[1];
      for_each_column([&](int k, int64_t column) {
        sums[k] += scalar::load(row[column * parameters.g_stride]);
      });
      ++found;
    }
    To* const own = to + index_of_place<Index>(parameters, first) * parameters.row_stride;
    for_each_column([&](int k, int64_t column) {
      const float sum = parameters.by_frequency ? sums[k] / static_cast<float>(found) : sums[k];
      own[column * parameters.to_stride] = scalar::store<To>(sum);
    });
  }
}
template <typename Index, typename To, typename G>
inline void embedding_gradients(const EmbeddingBackward& parameters) {
  // Quotients of 32 bits take a fraction of the time.
  constexpr int64_t kMost = scalar::numeric_limits<int32_t>::max();
  if (parameters.places.count * parameters.columns <= kMost) {
    embedding_gradients_by<Index, To, G, scalar::uint32_t>(parameters);
  } else {
    embedding_gradients_by<Index, To, G, int64_t>(parameters);
  }
}

}  // namespace dc::runtime::kernel::cuda
