// Variances and standard deviations over some dims.
//
// The mean first, then the distances from it, d, and their squares, summed as fold.h and reduce.h
// say. With n elements the variance is (sum(d^2) - sum(d)^2 / n) / (n - correction): the second
// sum, which is what the mean's own rounding leaves, matters where elements are far from 0 and
// close to each other (T. Chan, G. Golub and R. LeVeque, 1983).
#include <cmath>

#include "runtime/kernel/native/pair.h"
#include "runtime/kernel/native/reductions/reduce.h"

namespace dc::runtime::kernel::native {
namespace {

// to[i] = x[i] - mean.
template <typename T>
DC_VECTOR_CLONES void distances(T* __restrict to, const T* x, T mean, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = x[i] - mean;
}
template <typename T>
DC_VECTOR_CLONES void squares_of(T* __restrict x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = x[i] * x[i];
}
// Of rows, `step` elements apart, each with its distances from the means of its columns.
template <typename T>
DC_VECTOR_CLONES void add_distances(T* __restrict sums, T* __restrict squares, const T* x,
                                    int64_t step, int64_t rows, const T* means, int64_t n) {
  for (int64_t row = 0; row < rows; ++row, x += step) {
    for (int64_t i = 0; i < n; ++i) {
      const T d = x[i] - means[i];
      sums[i] += d;
      squares[i] += d * d;
    }
  }
}

template <typename T>
class Variance final : public Reduction<T> {
 public:
  Variance(const BoundTensor& self, const BoundTensor& to, const DimSplit& split, double correction,
           bool takes_root)
      : Reduction<T>(self, to, split, split.reduces_neighbours()),
        count_(static_cast<double>(split.reduced_count())),
        divisor_(std::max(count_ - correction, 0.0)),
        takes_root_(takes_root) {}

 private:
  void reduce(T* results, const std::byte* begin, int64_t n) const override {
    if (!this->by_rows()) return of_columns(results, begin, n);
    this->each(results, begin, n, [this](const std::byte* one) { return of_row(one); });
  }

  T finished(double sum, double squares) const {
    const double variance = (squares - sum * sum / count_) / divisor_;
    // What should be 0 may come out a little less.
    const double least = variance < 0 ? 0 : variance;
    return static_cast<T>(takes_root_ ? std::sqrt(least) : least);
  }

  T of_row(const std::byte* begin) const {
    const T mean = static_cast<T>(this->template fold<SumFold<T>>(begin) / count_);
    double sum = 0, squares = 0;
    this->in_blocks_of(begin, [&](const T* x, int64_t n) {
      alignas(64) T d[kBlock];
      distances(d, x, mean, n);
      sum += static_cast<double>(fold_chunk<SumFold<T>, T>(d, n));
      squares_of(d, n);
      squares += static_cast<double>(fold_chunk<SumFold<T>, T>(d, n));
    });
    return finished(sum, squares);
  }

  void of_columns(T* results, const std::byte* begin, int64_t n) const {
    alignas(64) T lanes[kBlock] = {}, more[kBlock] = {}, means[kBlock];
    double totals[kBlock] = {}, squares[kBlock] = {};
    this->over_columns(
        begin, n,
        [&](const T* x, int64_t step, int64_t rows) {
          fold_columns<SumFold<T>, T>(lanes, x, step, rows, n);
        },
        [&] { join_to_totals<SumFold<T>, T>(totals, lanes, n); });
    for (int64_t i = 0; i < n; ++i) means[i] = static_cast<T>(totals[i] / count_);
    std::fill_n(totals, n, 0.0);
    this->over_columns(
        begin, n,
        [&](const T* x, int64_t step, int64_t rows) {
          add_distances(lanes, more, x, step, rows, means, n);
        },
        [&] {
          join_to_totals<SumFold<T>, T>(totals, lanes, n);
          join_to_totals<SumFold<T>, T>(squares, more, n);
        });
    for (int64_t i = 0; i < n; ++i) results[i] = finished(totals[i], squares[i]);
  }

  double count_, divisor_;
  bool takes_root_;
};

Made variance(Call& call, bool takes_root) {
  const BoundTensor self = call.tensor("self"), to = call.output(0);
  call.require(base::is_floating(self.dtype) && base::is_floating(to.dtype),
               "a variance is of floating-point numbers");
  const double correction = call.number("correction", 1);
  const DimSplit split(call, self, to, call.integers("dim"));
  if (!call.ok()) return call.made(nullptr);
  return lane_of_reduction(self.dtype, to.dtype) == Lane::F64
             ? call.finish<Variance<double>>(self, to, split, correction, takes_root)
             : call.finish<Variance<float>>(self, to, split, correction, takes_root);
}
Made var(Call& call) { return variance(call, false); }
Made standard_deviation(Call& call) { return variance(call, true); }
// The mean is result 1.
Made var_mean(Call& call) {
  if (!call.has_result(1)) return var(call);
  call.require(base::is_floating(call.output(1).dtype), "its mean must be floating-point");
  return pair(call, var(call), reduce<SumFold>(call, true, 1));
}

constexpr Row kRows[] = {
    {"aten.std.correction", standard_deviation},
    {"aten.var.correction", var},
    {"aten.var_mean.correction", var_mean},
};

}  // namespace

std::span<const Row> variance_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
