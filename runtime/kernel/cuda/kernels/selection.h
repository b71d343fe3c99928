// The steps of std::sort, std::partial_sort and std::nth_element of GNU's C++ library, which ATen's
// CPU kernels and ours call: they decide which of equal elements topk takes, and in which order an
// unstable sort leaves them. One thread takes the steps of a row.
//
// A row has get(i), put(i, element) and swap(i, j); `before` compares two elements.
#pragma once

#include "runtime/kernel/scalar/language.h"

namespace dc::runtime::kernel::cuda::selection {

using scalar::int32_t, scalar::int64_t;

inline constexpr int64_t kFew = 16;  // are sorted by insertion

// Twice the binary logarithm: how often a range is parted before a heap takes over.
inline int64_t most_parts(int64_t count) {
  int64_t parts = 0;
  for (; count > 1; count /= 2) parts += 2;
  return parts;
}

// The heap [first, first + length) with a hole at `hole` gets an element.
template <typename Row, typename Before>
inline void adjust_heap(Row& row, int64_t first, int64_t hole, int64_t length,
                        typename Row::Element element, Before before) {
  const int64_t top = hole;
  int64_t child = hole;
  while (child < (length - 1) / 2) {
    child = 2 * (child + 1);
    if (before(row.get(first + child), row.get(first + child - 1))) --child;
    row.put(first + hole, row.get(first + child));
    hole = child;
  }
  if (length % 2 == 0 && child == (length - 2) / 2) {
    child = 2 * (child + 1);
    row.put(first + hole, row.get(first + child - 1));
    hole = child - 1;
  }
  for (int64_t parent = (hole - 1) / 2; hole > top && before(row.get(first + parent), element);
       parent = (hole - 1) / 2) {
    row.put(first + hole, row.get(first + parent));
    hole = parent;
  }
  row.put(first + hole, element);
}

// The top of the heap [first, last) goes to `place`, whose element goes into the heap.
template <typename Row, typename Before>
inline void pop_heap(Row& row, int64_t first, int64_t last, int64_t place, Before before) {
  const auto element = row.get(place);
  row.put(place, row.get(first));
  adjust_heap(row, first, 0, last - first, element, before);
}

// [first, middle) becomes a heap of the elements that come first.
template <typename Row, typename Before>
inline void select_by_heap(Row& row, int64_t first, int64_t middle, int64_t last, Before before) {
  const int64_t length = middle - first;
  for (int64_t parent = (length - 2) / 2; length > 1 && parent >= 0; --parent)
    adjust_heap(row, first, parent, length, row.get(first + parent), before);
  for (int64_t i = middle; i < last; ++i)
    if (before(row.get(i), row.get(first))) pop_heap(row, first, middle, i, before);
}

template <typename Row, typename Before>
inline void partial_sort(Row& row, int64_t first, int64_t middle, int64_t last, Before before) {
  select_by_heap(row, first, middle, last, before);
  for (int64_t end = middle - 1; end - first > 0; --end) pop_heap(row, first, end, end, before);
}

template <typename Row, typename Before>
inline void insert(Row& row, int64_t place, Before before) {
  const auto element = row.get(place);
  for (; before(element, row.get(place - 1)); --place) row.put(place, row.get(place - 1));
  row.put(place, element);
}
template <typename Row, typename Before>
inline void insertion_sort(Row& row, int64_t first, int64_t last, Before before) {
  for (int64_t i = first + 1; i < last; ++i) {
    const auto element = row.get(i);
    if (!before(element, row.get(first))) {
      insert(row, i, before);
      continue;
    }
    for (int64_t place = i; place > first; --place) row.put(place, row.get(place - 1));
    row.put(first, element);
  }
}

// Parts [first, last) by the median of three elements, and returns where the second part begins.
template <typename Row, typename Before>
inline int64_t part_by_pivot(Row& row, int64_t first, int64_t last, Before before) {
  const int64_t a = first + 1, b = first + (last - first) / 2, c = last - 1;
  const auto precedes = [&](int64_t i, int64_t j) { return before(row.get(i), row.get(j)); };
  int64_t median = 0;
  if (precedes(a, b)) {
    median = precedes(b, c) ? b : precedes(a, c) ? c : a;
  } else {
    median = precedes(a, c) ? a : precedes(b, c) ? c : b;
  }
  row.swap(first, median);
  int64_t from = first + 1, to = last;
  for (;; ++from) {
    while (precedes(from, first)) ++from;
    --to;
    while (precedes(first, to)) --to;
    if (from >= to) return from;
    row.swap(from, to);
  }
}

template <typename Row, typename Before>
inline void sort(Row& row, int64_t first, int64_t last, Before before) {
  // Ranges that are still to be parted: at most one for each time that a range is parted.
  struct Range {
    int64_t first, last, parts;
  };
  Range waiting[64];
  int count = 0;
  waiting[count++] = {first, last, most_parts(last - first)};
  while (count > 0) {
    Range range = waiting[--count];
    while (range.last - range.first > kFew) {
      if (range.parts == 0) {
        partial_sort(row, range.first, range.last, range.last, before);
        break;
      }
      --range.parts;
      const int64_t cut = part_by_pivot(row, range.first, range.last, before);
      waiting[count++] = {cut, range.last, range.parts};
      range.last = cut;
    }
  }
  if (last - first <= kFew) return insertion_sort(row, first, last, before);
  insertion_sort(row, first, first + kFew, before);
  for (int64_t i = first + kFew; i < last; ++i) insert(row, i, before);
}

template <typename Row, typename Before>
inline void nth_element(Row& row, int64_t first, int64_t nth, int64_t last, Before before) {
  if (first == last || nth == last) return;
  int64_t parts = most_parts(last - first);
  while (last - first > 3) {
    if (parts == 0) {
      select_by_heap(row, first, nth + 1, last, before);
      row.swap(first, nth);
      return;
    }
    --parts;
    const int64_t cut = part_by_pivot(row, first, last, before);
    (cut <= nth ? first : last) = cut;
  }
  insertion_sort(row, first, last, before);
}

}  // namespace dc::runtime::kernel::cuda::selection
