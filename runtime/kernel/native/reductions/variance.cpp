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
class Variance final : public Kernel {
 public:
  Variance(const BoundTensor& self, const BoundTensor& to, const DimSplit& split, double correction,
           bool takes_root)
      : self_(static_cast<std::byte*>(self.data)),
        to_(static_cast<std::byte*>(to.data)),
        to_element_(base::byte_size(to.dtype)),
        kept_(split.kept()),
        reduced_(split.reduced()),
        by_rows_(split.reduces_neighbours()),
        reader_(kLaneOf<T>, self.dtype, (by_rows_ ? reduced_ : kept_).inner_stride(0)),
        count_(static_cast<double>(split.reduced_count())),
        divisor_(std::max(count_ - correction, 0.0)),
        takes_root_(takes_root),
        store_(storer(kLaneOf<T>, to.dtype)) {}

  base::Status launch(device::Stream& stream) override {
    const std::byte* self = stream.resolve(self_);
    std::byte* to = stream.resolve(to_);
    kept_.for_each_row([&](const Offsets& at) {
      alignas(64) T results[kBlock];
      const int64_t stride = kept_.inner_stride(1);
      for (int64_t first = 0; first < kept_.inner(); first += kBlock) {
        const int64_t n = std::min(kBlock, kept_.inner() - first);
        const std::byte* from = self + at[0] * reader_.element;
        by_rows_ ? of_rows(results, from, first, n) : of_columns(results, from, first, n);
        store_(to + (at[1] + first * stride) * to_element_, stride, results, n);
      }
    });
    return {};
  }

 private:
  T finished(double sum, double squares) const {
    const double variance = (squares - sum * sum / count_) / divisor_;
    // What should be 0 may come out a little less.
    const double least = variance < 0 ? 0 : variance;
    return static_cast<T>(takes_root_ ? std::sqrt(least) : least);
  }

  void of_rows(T* results, const std::byte* from, int64_t first, int64_t n) const {
    for (int64_t i = 0; i < n; ++i)
      results[i] = of_row(from + (first + i) * kept_.inner_stride(0) * reader_.element);
  }
  T of_row(const std::byte* begin) const {
    double total = 0, sum = 0, squares = 0;
    reduced_.for_each_row([&](const Offsets& row) {
      total = fold_row<SumFold<T>, T>(reader_, begin + row[0] * reader_.element, reduced_.inner(),
                                      total);
    });
    const T mean = static_cast<T>(total / count_);
    reduced_.for_each_row([&](const Offsets& row) {
      alignas(64) T buffer[kBlock], d[kBlock];
      for (int64_t at = 0; at < reduced_.inner(); at += kBlock) {
        const int64_t count = std::min(kBlock, reduced_.inner() - at);
        const void* x = reader_.read(buffer, begin + row[0] * reader_.element, at, count);
        distances(d, static_cast<const T*>(x), mean, count);
        sum += static_cast<double>(fold_chunk<SumFold<T>, T>(d, count));
        squares_of(d, count);
        squares += static_cast<double>(fold_chunk<SumFold<T>, T>(d, count));
      }
    });
    return finished(sum, squares);
  }

  // add(rows of the operand, their distance, how many) for all rows, at most kRowsInLanes in all
  // between two calls of flush().
  template <typename Add, typename Flush>
  void over_rows(const std::byte* from, int64_t first, int64_t n, Add&& add, Flush&& flush) const {
    int64_t rows = 0;
    alignas(64) T buffer[kBlock];
    reduced_.for_each_row([&](const Offsets& at) {
      const int64_t step = reduced_.inner_stride(0);
      for (int64_t i = 0; i < reduced_.inner();) {
        const std::byte* row = from + (at[0] + i * step) * reader_.element;
        const int64_t together =
            reader_.direct ? std::min(kRowsInLanes - rows, reduced_.inner() - i) : 1;
        add(static_cast<const T*>(reader_.read(buffer, row, first, n)), step, together);
        i += together;
        rows += together;
        if (rows == kRowsInLanes) flush(), rows = 0;
      }
    });
    flush();
  }

  void of_columns(T* results, const std::byte* from, int64_t first, int64_t n) const {
    alignas(64) T lanes[kBlock] = {}, more[kBlock] = {}, means[kBlock];
    double totals[kBlock] = {}, squares[kBlock] = {};
    const auto empty = [n](T* from_lanes, double* into) {
      for (int64_t i = 0; i < n; ++i) into[i] += static_cast<double>(from_lanes[i]);
      std::fill_n(from_lanes, n, T{});
    };
    over_rows(
        from, first, n,
        [&](const T* x, int64_t step, int64_t rows) {
          fold_columns<SumFold<T>, T>(lanes, x, step, rows, n);
        },
        [&] { empty(lanes, totals); });
    for (int64_t i = 0; i < n; ++i) means[i] = static_cast<T>(totals[i] / count_);
    std::fill_n(totals, n, 0.0);
    over_rows(
        from, first, n,
        [&](const T* x, int64_t step, int64_t rows) {
          add_distances(lanes, more, x, step, rows, means, n);
        },
        [&] {
          empty(lanes, totals);
          empty(more, squares);
        });
    for (int64_t i = 0; i < n; ++i) results[i] = finished(totals[i], squares[i]);
  }

  std::byte *self_, *to_;
  int64_t to_element_;
  Iteration kept_, reduced_;
  bool by_rows_;
  LaneReader reader_;
  double count_, divisor_;
  bool takes_root_;
  StoreLanes store_;
};

Made variance(Call& call, bool takes_root) {
  const BoundTensor self = call.tensor("self"), to = call.output(0);
  call.require(base::is_floating(self.dtype) && base::is_floating(to.dtype),
               "a variance is of floating-point numbers");
  const double correction = call.number("correction", 1);
  const DimSplit split(call, self, to, call.integers("dim"));
  if (!call.ok()) return call.made(nullptr);
  return lane_of_reduction(self, to) == Lane::F64
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
