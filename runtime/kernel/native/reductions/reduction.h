// What all kernels have in common that fold some dims of a tensor: a walk over the elements of the
// result, in blocks, and over the elements that one of them, or neighbouring ones, are made of.
#pragma once

#include "runtime/kernel/native/reductions/fold.h"
#include "runtime/kernel/native/reductions/split.h"
#include "runtime/kernel/native/registry.h"

namespace dc::runtime::kernel::native {

inline constexpr int64_t kRowsInLanes = 64;  // of columns, before they are added to totals

template <typename T>
class Reduction : public Kernel {
 public:
  base::Status launch(device::Stream& stream) final {
    const std::byte* self = stream.resolve(self_);
    std::byte* to = stream.resolve(to_);
    const int64_t stride = kept_.inner_stride(1);
    kept_.for_each_row([&](const Offsets& at) {
      alignas(64) T results[kBlock];
      in_blocks(kept_.inner(), [&](int64_t first, int64_t n) {
        reduce(results, self + at[0] * reader_.element + first * between_, n);
        store_(to + (at[1] + first * stride) * to_element_, stride, results, n);
      });
    });
    return {};
  }

 protected:
  // `by_rows`: operands are read along the reduced dims, as fold(), in_blocks_of() and each() do;
  // otherwise along the kept ones, as over_columns() does.
  Reduction(const BoundTensor& self, const BoundTensor& to, const DimSplit& split, bool by_rows)
      : self_(static_cast<std::byte*>(self.data)),
        to_(static_cast<std::byte*>(to.data)),
        to_element_(base::byte_size(to.dtype)),
        kept_(split.kept()),
        reduced_(split.reduced()),
        by_rows_(by_rows),
        reader_(kLaneOf<T>, self.dtype, (by_rows ? reduced_ : kept_).inner_stride(0)),
        is_dense_bf16_(reader_.stride == 1 && self.dtype == base::DType::BF16),
        between_(kept_.inner_stride(0) * reader_.element),
        store_(storer(kLaneOf<T>, to.dtype)) {}

  // The next n <= kBlock results. `begin`: the first element of what the first is made of.
  virtual void reduce(T* results, const std::byte* begin, int64_t n) const = 0;

  bool by_rows() const { return by_rows_; }
  int64_t reduced_count() const { return reduced_.count(); }

  // Each result by itself: of(the first element of what it is made of).
  template <typename Of>
  void each(T* results, const std::byte* begin, int64_t n, Of&& of) const {
    for (int64_t i = 0; i < n; ++i) results[i] = of(begin + i * between_);
  }

  // All that one result is made of, folded as fold.h says.
  template <typename Fold>
  typename Fold::Total fold(const std::byte* begin) const {
    auto total = static_cast<typename Fold::Total>(Fold::neutral());
    const auto add = [&](const Offsets& row) {
      total = fold_row<Fold, T>(reader_, begin + row[0] * reader_.element, reduced_.inner(), total);
    };
    reduced_.is_row() ? add(Offsets{}) : reduced_.for_each_row(add);
    return total;
  }

  // Each result by itself, if it is made of one chunk in memory; false if it is not.
  template <typename Fold>
  bool fold_chunks(T* results, const std::byte* begin, int64_t n) const {
    const int64_t length = reduced_.inner();
    if (!reader_.direct || !reduced_.is_row() || length > kBlock) return false;
    const auto* x = reinterpret_cast<const T*>(begin);
    const int64_t step = kept_.inner_stride(0);
    length <= kFoldLanes / 2 ? fold_few_chunks<Fold, T>(results, x, step, n, length)
                             : fold_long_chunks<Fold, T>(results, x, step, n, length);
    return true;
  }

  // f(elements, how many) for the blocks of what one result is made of.
  template <typename F>
  void in_blocks_of(const std::byte* begin, F&& f) const {
    reduced_.for_each_row([&](const Offsets& row) {
      alignas(64) T buffer[kBlock];
      in_blocks(reduced_.inner(), [&](int64_t first, int64_t n) {
        const void* x = reader_.read(buffer, begin + row[0] * reader_.element, first, n);
        f(static_cast<const T*>(x), n);
      });
    });
  }

  // n results at once: add(rows of n elements, their distance, how many rows) for all of them, at
  // most kRowsInLanes in all between two calls of flush(), which also comes last.
  template <typename Add, typename Flush>
  void over_columns(const std::byte* begin, int64_t n, Add&& add, Flush&& flush) const {
    alignas(64) T buffer[kBlock];
    in_rows_of_columns(reader_.direct, add, flush, [&](int64_t offset) {
      // What must be converted goes through the buffer, row by row.
      return static_cast<const T*>(reader_.read(buffer, begin + offset * reader_.element, 0, n));
    });
  }
  // The same with an add() that takes elements of bf16 as well, which lie in memory.
  template <typename Add, typename Flush>
  void over_columns_as_they_are(const std::byte* begin, int64_t n, Add&& add, Flush&& flush) const {
    if constexpr (std::is_same_v<T, float>) {
      if (is_dense_bf16_) {
        in_rows_of_columns(true, add, flush, [&](int64_t offset) {
          return reinterpret_cast<const BF16*>(begin) + offset;
        });
        return;
      }
    }
    over_columns(begin, n, add, flush);
  }

 private:
  // row(offset): the elements of a row of columns; `together`: whether add() takes several rows.
  template <typename Add, typename Flush, typename Row>
  void in_rows_of_columns(bool together, Add&& add, Flush&& flush, Row&& row) const {
    int64_t rows = 0;
    reduced_.for_each_row([&](const Offsets& at) {
      const int64_t step = reduced_.inner_stride(0);
      for (int64_t i = 0; i < reduced_.inner();) {
        const int64_t count = together ? std::min(kRowsInLanes - rows, reduced_.inner() - i) : 1;
        add(row(at[0] + i * step), step, count);
        i += count;
        rows += count;
        if (rows == kRowsInLanes) flush(), rows = 0;
      }
    });
    flush();
  }

  std::byte *self_, *to_;
  int64_t to_element_;
  Iteration kept_, reduced_;
  bool by_rows_;
  LaneReader reader_;
  bool is_dense_bf16_;
  int64_t between_;  // from what one result is made of to the next, bytes
  StoreLanes store_;
};

}  // namespace dc::runtime::kernel::native
