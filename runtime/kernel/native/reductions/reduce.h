// Folds over some dims of a tensor: the kernel behind sums, means, extremes and norms.
//
// Where the elements of one result lie next to each other they are folded as a row; otherwise whole
// rows are added to a row of results, 64 of them in f32, then in f64.
#pragma once

#include <array>

#include "runtime/kernel/native/iteration.h"
#include "runtime/kernel/native/reductions/fold.h"
#include "runtime/kernel/native/reductions/split.h"
#include "runtime/kernel/native/registry.h"

namespace dc::runtime::kernel::native {

inline constexpr int64_t kRowsInLanes = 64;  // of columns, before they are added to totals

// What a fold's total becomes at last, where that is not itself: Fold::finish(total).
template <typename Fold>
constexpr bool finishes() {
  return requires(typename Fold::Total total) { Fold::finish(total); };
}

template <typename Fold, typename T>
class Reduce final : public Kernel {
  using Total = typename Fold::Total;

 public:
  Reduce(const BoundTensor& self, const BoundTensor& to, const DimSplit& split, double divisor)
      : self_(static_cast<std::byte*>(self.data)),
        to_(static_cast<std::byte*>(to.data)),
        to_element_(base::byte_size(to.dtype)),
        kept_(split.kept()),
        reduced_(split.reduced()),
        by_rows_(split.reduces_neighbours()),
        reader_(kLaneOf<T>, self.dtype, (by_rows_ ? reduced_ : kept_).inner_stride(0)),
        divisor_(divisor),
        store_(storer(kLaneOf<T>, to.dtype)) {}

  base::Status launch(device::Stream& stream) override {
    const std::byte* self = stream.resolve(self_);
    std::byte* to = stream.resolve(to_);
    const int64_t element = reader_.element, columns = kept_.inner();
    kept_.for_each_row([&](const Offsets& at) {
      const std::byte* from = self + at[0] * element;
      std::byte* target = to + at[1] * to_element_;
      if (!by_rows_) return fold_by_columns(from, target);
      fold_by_rows(from, target, columns);
    });
    return {};
  }

 private:
  void fold_by_rows(const std::byte* from, std::byte* target, int64_t columns) const {
    const int64_t element = reader_.element, stride = kept_.inner_stride(1);
    alignas(64) T results[kBlock];
    for (int64_t first = 0; first < columns; first += kBlock) {
      const int64_t count = std::min(kBlock, columns - first);
      for (int64_t i = 0; i < count; ++i) {
        Total total = static_cast<Total>(Fold::neutral());
        const std::byte* begin = from + (first + i) * kept_.inner_stride(0) * element;
        const auto fold = [&](const Offsets& row) {
          total = fold_row<Fold, T>(reader_, begin + row[0] * element, reduced_.inner(), total);
        };
        if (reduced_.is_row()) {
          fold(Offsets{});
        } else {
          reduced_.for_each_row(fold);
        }
        results[i] = finished(total);
      }
      store_(target + first * stride * to_element_, stride, results, count);
    }
  }

  void fold_by_columns(const std::byte* from, std::byte* target) const {
    for (int64_t first = 0; first < kept_.inner(); first += kBlock) {
      const int64_t count = std::min(kBlock, kept_.inner() - first);
      alignas(64) T buffer[kBlock];
      alignas(64) T lanes[kBlock];
      Total totals[kBlock];
      std::fill_n(lanes, count, Fold::neutral());
      int64_t rows = 0;
      // Few rows need no totals: a total of one number is the number.
      const bool many = reduced_.count() > kRowsInLanes;
      if (many) std::fill_n(totals, count, static_cast<Total>(Fold::neutral()));
      const auto flush = [&] {
        for (int64_t i = 0; i < count; ++i) totals[i] = Fold::join_totals(totals[i], lanes[i]);
        std::fill_n(lanes, count, Fold::neutral());
        rows = 0;
      };
      reduced_.for_each_row([&](const Offsets& at) {
        const int64_t step = reduced_.inner_stride(0);
        for (int64_t i = 0; i < reduced_.inner();) {
          const std::byte* row = from + (at[0] + i * step) * reader_.element;
          // What must be converted goes through the buffer, row by row.
          const int64_t together =
              reader_.direct ? std::min(kRowsInLanes - rows, reduced_.inner() - i) : 1;
          const auto* x = static_cast<const T*>(reader_.read(buffer, row, first, count));
          fold_columns<Fold, T>(lanes, x, step, together, count);
          i += together;
          rows += together;
          if (many && rows == kRowsInLanes) flush();
        }
      });
      if (many) {
        flush();
        for (int64_t i = 0; i < count; ++i) lanes[i] = finished(totals[i]);
      } else if (divisor_ != 1 || finishes<Fold>()) {
        for (int64_t i = 0; i < count; ++i) lanes[i] = finished(static_cast<Total>(lanes[i]));
      }
      const int64_t stride = kept_.inner_stride(1);
      store_(target + first * stride * to_element_, stride, lanes, count);
    }
  }

  T finished(Total total) const {
    if constexpr (std::is_floating_point_v<Total>) {
      if (divisor_ != 1) total = static_cast<Total>(total / divisor_);
    }
    if constexpr (finishes<Fold>()) total = Fold::finish(total);
    return static_cast<T>(total);
  }

  std::byte *self_, *to_;
  int64_t to_element_;
  Iteration kept_, reduced_;
  bool by_rows_;
  LaneReader reader_;
  double divisor_;  // of the fold: the count, for a mean
  StoreLanes store_;
};

inline Lane lane_of_reduction(const BoundTensor& self, const BoundTensor& to) {
  if (self.dtype == base::DType::F64 || to.dtype == base::DType::F64) return Lane::F64;
  return base::is_floating(self.dtype) || base::is_floating(to.dtype) ? Lane::F32 : Lane::I64;
}

// `takes_mean`: totals are divided by the number of elements. `result`: which of the instruction's.
template <template <typename> class Fold>
Made reduce(Call& call, bool takes_mean = false, size_t result = 0) {
  const BoundTensor self = call.tensor("self"), to = call.output(result);
  const DimSplit split(call, self, to, call.integers("dim"));
  if (!call.ok()) return call.made(nullptr);
  const double divisor = takes_mean ? static_cast<double>(split.reduced_count()) : 1;
  switch (lane_of_reduction(self, to)) {
    case Lane::F64:
      return call.finish<Reduce<Fold<double>, double>>(self, to, split, divisor);
    case Lane::F32:
      return call.finish<Reduce<Fold<float>, float>>(self, to, split, divisor);
    default:
      return call.finish<Reduce<Fold<int64_t>, int64_t>>(self, to, split, divisor);
  }
}

}  // namespace dc::runtime::kernel::native
