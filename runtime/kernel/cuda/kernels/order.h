// sort and topk. NaN is larger than every number. A stable sort is made by a block (bitonic:
// Batcher, 1968), since values and numbers have one order together; what leaves the order of equal
// elements open takes the CPU's steps, a thread for each row.
#pragma once

#include "runtime/kernel/cuda/kernels/blocks.h"
#include "runtime/kernel/cuda/kernels/numbers.h"
#include "runtime/kernel/cuda/kernels/order_parameters.h"
#include "runtime/kernel/cuda/kernels/selection.h"

namespace dc::runtime::kernel::cuda {

template <typename C>
struct RowElement {
  C value;
  int32_t number;
};

// Elements of one row, `step` apart.
template <typename C>
struct ElementRow {
  using Element = RowElement<C>;
  C* values;
  int32_t* numbers;
  int64_t step;

  Element get(int64_t i) const { return {values[i * step], numbers[i * step]}; }
  void put(int64_t i, const Element& element) const {
    values[i * step] = element.value;
    numbers[i * step] = element.number;
  }
  void swap(int64_t i, int64_t j) const {
    const Element at_i = get(i);
    put(i, get(j));
    put(j, at_i);
  }
};

template <bool kDescending, typename C>
inline bool precedes(const RowElement<C>& a, const RowElement<C>& b) {
  const C x = kDescending ? b.value : a.value, y = kDescending ? a.value : b.value;
  return x < y || (y != y && x == x);
}

template <bool kDescending>
struct Before {
  template <typename C>
  bool operator()(const RowElement<C>& a, const RowElement<C>& b) const {
    return precedes<kDescending>(a, b);
  }
};

// The row that a thread, or a block, puts in order.
template <typename T>
class OrderedRow {
 public:
  using C = Computed<T>;
  OrderedRow(const Order& of, int64_t row) : of_(of), at_(places_of(of.rows.rows, row)) {}

  void read(const ElementRow<C>& to, int64_t i) const {
    const T* from = static_cast<const T*>(of_.from) + at_.at[0];
    to.put(i, {scalar::load(from[i * of_.rows.strides[0]]), static_cast<int32_t>(i)});
  }
  void write(const ElementRow<C>& from, int64_t i) const {
    const RowElement<C> element = from.get(i);
    static_cast<T*>(of_.values)[at_.at[1] + i * of_.rows.strides[1]] =
        scalar::store<T>(element.value);
    of_.indices[at_.at[2] + i * of_.rows.strides[2]] = element.number;
  }

 private:
  const Order& of_;
  Places<3> at_;
};

// f(row, its elements) for the thread's rows. Rows of neighbouring threads lie between each other.
template <typename T, typename F>
inline void for_each_row_of_thread(const Order& of, F f) {
  using C = Computed<T>;
  const auto thread = first_element<int64_t>();
  if (thread >= of.room.count) return;
  const ElementRow<C> elements{static_cast<C*>(of.room.values) + thread, of.room.numbers + thread,
                               of.room.count};
  for (int64_t row = thread; row < of.rows.rows.count; row += of.room.count) {
    const OrderedRow<T> own(of, row);
    for (int64_t i = 0; i < of.rows.length; ++i) own.read(elements, i);
    f(elements);
    for (int64_t i = 0; i < of.taken; ++i) own.write(elements, i);
  }
}

template <typename T, bool kDescending>
inline void sort_rows(const Order& parameters) {
  using C = Computed<T>;
  for_each_row_of_thread<T>(parameters, [&](const ElementRow<C>& row) {
    selection::sort(row, 0, parameters.rows.length, Before<kDescending>());
  });
}

template <typename T, bool kDescending>
inline void topk_rows(const Order& parameters) {
  using C = Computed<T>;
  constexpr int64_t kOfMany = 64;  // ATen's
  const int64_t length = parameters.rows.length, taken = parameters.taken;
  for_each_row_of_thread<T>(parameters, [&](const ElementRow<C>& row) {
    const Before<kDescending> before;
    if (taken <= length / kOfMany) {
      selection::partial_sort(row, 0, taken, length, before);
      return;
    }
    selection::nth_element(row, 0, taken - 1, length, before);
    if (parameters.sorted) selection::sort(row, 0, taken - 1, before);
  });
}

// A block for each row. The room of a row is a power of two; places behind the row have no element.
template <typename T, bool kDescending>
inline void stable_sort_rows(const Order& parameters) {
  using C = Computed<T>;
  const int64_t length = parameters.rows.length, room = parameters.room.length;
  const ElementRow<C> elements{static_cast<C*>(parameters.room.values) + blockIdx.x * room,
                               parameters.room.numbers + blockIdx.x * room, 1};
  const auto comes_first = [&](const RowElement<C>& a, const RowElement<C>& b) {
    if (a.number >= length || b.number >= length) return a.number < b.number;
    if (precedes<kDescending>(a, b)) return true;
    return !precedes<kDescending>(b, a) && a.number < b.number;
  };
  for (int64_t i = blockIdx.x; i < parameters.rows.rows.count; i += gridDim.x) {
    const OrderedRow<T> row(parameters, i);
    for_each_in_block(room, [&](int64_t k) {
      if (k < length) {
        row.read(elements, k);
      } else {
        elements.put(k, {C{0}, static_cast<int32_t>(k)});
      }
    });
    __syncthreads();
    for (int64_t run = 2; run <= room; run *= 2) {
      for (int64_t distance = run / 2; distance > 0; distance /= 2) {
        for_each_in_block(room / 2, [&](int64_t k) {
          const int64_t low = 2 * k - (k & (distance - 1)), high = low + distance;
          const bool is_ascending = (low & run) == 0;
          const bool is_swapped = comes_first(elements.get(high), elements.get(low));
          if (is_swapped == is_ascending) elements.swap(low, high);
        });
        __syncthreads();
      }
    }
    for_each_in_block(parameters.taken, [&](int64_t k) { row.write(elements, k); });
    __syncthreads();
  }
}

}  // namespace dc::runtime::kernel::cuda
