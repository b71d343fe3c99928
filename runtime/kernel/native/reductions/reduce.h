// Folds over some dims of a tensor: the kernel behind sums, means, extremes and norms.
//
// Where the elements of one result lie next to each other they are folded as a row; otherwise whole
// rows are added to a row of results, 64 of them in f32, then in f64.
#pragma once

#include "runtime/kernel/native/reductions/reduction.h"

namespace dc::runtime::kernel::native {

// What a fold's total becomes at last, where that is not itself: Fold::finish(total).
template <typename Fold>
constexpr bool finishes() {
  return requires(typename Fold::Total total) { Fold::finish(total); };
}

// `divisor`: the number of elements of a mean, else 1.
template <typename Fold, typename T>
T finished(typename Fold::Total total, double divisor) {
  using Total = typename Fold::Total;
  if constexpr (std::is_floating_point_v<Total>) {
    if (divisor != 1) total = static_cast<Total>(total / divisor);
  }
  if constexpr (finishes<Fold>()) total = Fold::finish(total);
  return static_cast<T>(total);
}
template <typename Fold, typename T>
void finish_all(T* results, int64_t n, double divisor) {
  if (divisor == 1 && !finishes<Fold>()) return;
  for (int64_t i = 0; i < n; ++i)
    results[i] = finished<Fold, T>(static_cast<typename Fold::Total>(results[i]), divisor);
}

template <typename Fold, typename T>
class Reduce final : public Reduction<T> {
  using Total = typename Fold::Total;

 public:
  Reduce(const BoundTensor& self, const BoundTensor& to, const DimSplit& split, double divisor)
      : Reduction<T>(self, to, split, split.reduces_neighbours()), divisor_(divisor) {}

 private:
  void reduce(T* results, const std::byte* begin, int64_t n) const override {
    if (!this->by_rows()) return of_columns(results, begin, n);
    if (this->template fold_chunks<Fold>(results, begin, n))
      return finish_all<Fold>(results, n, divisor_);
    this->each(results, begin, n, [&](const std::byte* one) {
      return finished<Fold, T>(this->template fold<Fold>(one), divisor_);
    });
  }

  void of_columns(T* results, const std::byte* begin, int64_t n) const {
    Total totals[kBlock];
    std::fill_n(results, n, Fold::neutral());
    // Few rows need no totals: a total of one number is the number.
    const bool many = this->reduced_count() > kRowsInLanes;
    if (many) std::fill_n(totals, n, static_cast<Total>(Fold::neutral()));
    const auto add = [&](const auto* x, int64_t step, int64_t rows) {
      fold_columns<Fold, T>(results, x, step, rows, n);
    };
    const auto flush = [&] {
      if (many) join_to_totals<Fold, T>(totals, results, n);
    };
    this->over_columns_as_they_are(begin, n, add, flush);
    if (!many) return finish_all<Fold>(results, n, divisor_);
    for (int64_t i = 0; i < n; ++i) results[i] = finished<Fold, T>(totals[i], divisor_);
  }

  double divisor_;  // of the fold: the count, for a mean
};

// The elements of a sum with an integer result are converted to integers first, as PyTorch does:
// floating-point ones are cut. Whether any or all of them are nonzero is asked as they are.
inline Lane lane_of_reduction(base::DType self, base::DType to) {
  if (!base::is_floating(to) && to != base::DType::Bool) return Lane::I64;
  if (self == base::DType::F64 || to == base::DType::F64) return Lane::F64;
  return base::is_floating(self) || base::is_floating(to) ? Lane::F32 : Lane::I64;
}

// `takes_mean`: totals are divided by the number of elements. `result`: which of the instruction's.
template <template <typename> class Fold>
Made reduce(Call& call, bool takes_mean = false, size_t result = 0) {
  const BoundTensor self = call.tensor("self"), to = call.output(result);
  const DimSplit split(call, self, to, call.integers("dim"));
  if (!call.ok()) return call.made(nullptr);
  const double divisor = takes_mean ? static_cast<double>(split.reduced_count()) : 1;
  switch (lane_of_reduction(self.dtype, to.dtype)) {
    case Lane::F64:
      return call.finish<Reduce<Fold<double>, double>>(self, to, split, divisor);
    case Lane::F32:
      return call.finish<Reduce<Fold<float>, float>>(self, to, split, divisor);
    default:
      return call.finish<Reduce<Fold<int64_t>, int64_t>>(self, to, split, divisor);
  }
}

}  // namespace dc::runtime::kernel::native
