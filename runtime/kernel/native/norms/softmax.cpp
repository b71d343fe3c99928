// softmax and log_softmax along one dim, and their gradients.
//
// A row is read three times: its largest element, the sum of exp(x - largest) in the order of
// fold.h, the results. Nothing of the size of a row is stored between them.
#include <array>
#include <limits>

#include "runtime/kernel/native/norms/log_softmax_rows.h"
#include "runtime/kernel/native/norms/rows.h"
#include "runtime/kernel/native/reductions/fold.h"
#include "runtime/kernel/native/registry.h"

namespace dc::runtime::kernel::native {
namespace {

enum class Kind { Softmax, SafeSoftmax, LogSoftmax };

template <typename T>
DC_VECTOR_CLONES void multiply(T* out, const T* x, T factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * factor;
}
template <typename T>
DC_VECTOR_CLONES void softmax_gradient(T* __restrict out, const T* g, const T* y, T sum,
                                       int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = (g[i] - sum) * y[i];
}
// The same of rows that lie one behind the other.
template <typename T>
DC_VECTOR_CLONES void softmax_gradients(T* __restrict out, const T* g, const T* y, const T* sums,
                                        int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = r * n; i < r * n + n; ++i) out[i] = (g[i] - sums[r]) * y[i];
  }
}
template <typename T>
DC_VECTOR_CLONES void products(T* __restrict out, const T* x, const T* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * y[i];
}

template <typename T>
class Softmax final : public Kernel {
 public:
  Softmax(const Rows& rows, const BoundTensor& x, const BoundTensor& y, Kind kind)
      : rows_(rows), x_(x, rows.stride(0)), y_(y, rows.stride(1)), kind_(kind) {}

  base::Status launch(device::Stream& stream) override {
    std::byte *x = x_.on(stream), *y = y_.on(stream);
    rows_.for_each([&](const Offsets& at) { row(x_.row(x, at[0]), y_.row(y, at[1])); });
    return {};
  }

 private:
  void row(const std::byte* from, std::byte* y) const {
    const int64_t n = rows_.length();
    RowBlocks<T> x(x_, from);
    const T largest = largest_of(x, n);
    // A row of -inf alone has no largest element to subtract; NaN is larger than every number.
    const bool masked = largest == -std::numeric_limits<T>::infinity();
    const bool zeros = masked && kind_ == Kind::SafeSoftmax;
    alignas(64) T powers[kBlock];
    // softmax keeps the powers where its results will be, if they fit there as they are.
    const double sum = sum_of_powers(x, n, largest, [&](int64_t first) {
      return kind_ == Kind::LogSoftmax ? powers : y_.target(powers, y, first);
    });
    const T log_of_sum = static_cast<T>(math::log(sum)), factor = static_cast<T>(1.0 / sum);
    in_blocks(n, [&](int64_t first, int64_t count) {
      alignas(64) T buffer[kBlock];
      T* out = y_.target(buffer, y, first);
      if (kind_ == Kind::LogSoftmax) {
        log_softmax_of(out, x.read(first, count), largest, log_of_sum, count);
      } else if (zeros) {
        std::fill_n(out, count, T{});
      } else {
        if (out == buffer) exp_of_difference(out, x.read(first, count), largest, count);
        multiply(out, out, factor, count);
      }
      y_.write(buffer, y, first, count);
    });
  }

  Rows rows_;
  RowTensor<T> x_, y_;
  Kind kind_;
};

template <typename T>
class SoftmaxBackward final : public Kernel {
 public:
  SoftmaxBackward(const Rows& rows, const BoundTensor& g, const BoundTensor& y,
                  const BoundTensor& to, bool logarithm)
      : rows_(rows),
        g_(g, rows.stride(0)),
        y_(y, rows.stride(1)),
        to_(to, rows.stride(2)),
        logarithm_(logarithm),
        has_short_rows_(!logarithm && rows.length() > 0 && rows.length() <= kFoldLanes / 2 &&
                        are_dense(rows)) {}

  base::Status launch(device::Stream& stream) override {
    std::byte *g = g_.on(stream), *y = y_.on(stream), *to = to_.on(stream);
    if (has_short_rows_) {
      const Iteration& first = rows_.first_elements();
      first.for_each_row([&](const Offsets& at) {
        short_rows(reinterpret_cast<const T*>(g_.row(g, at[0])),
                   reinterpret_cast<const T*>(y_.row(y, at[1])),
                   reinterpret_cast<T*>(to_.row(to, at[2])), first.inner());
      });
      return {};
    }
    rows_.for_each(
        [&](const Offsets& at) { row(g_.row(g, at[0]), y_.row(y, at[1]), to_.row(to, at[2])); });
    return {};
  }

 private:
  // Whether rows lie one behind the other, as what is computed with.
  bool are_dense(const Rows& rows) const {
    bool dense = g_.reader().direct && y_.reader().direct && to_.reader().direct;
    for (size_t t = 0; t < 3; ++t)
      dense = dense && rows.first_elements().inner_stride(t) == rows.length();
    return dense;
  }

  // As row() does it, many rows in one call.
  void short_rows(const T* g, const T* y, T* to, int64_t rows) const {
    const int64_t n = rows_.length(), at_once = kBlock / n;
    alignas(64) T buffer[kBlock], sums[kBlock];
    for (; rows > 0; rows -= at_once, g += at_once * n, y += at_once * n, to += at_once * n) {
      const int64_t count = std::min(rows, at_once);
      products(buffer, g, y, count * n);
      fold_few_chunks<SumFold<T>>(sums, buffer, n, count, n);
      for (int64_t r = 0; r < count; ++r) sums[r] = sums[r] + T{};  // row() adds it to zero
      softmax_gradients(to, g, y, sums, count, n);
    }
  }

  void row(const std::byte* g_row, const std::byte* y_row, std::byte* to) const {
    const int64_t n = rows_.length();
    RowBlocks<T> g(g_, g_row), y(y_, y_row);
    alignas(64) T buffer[kBlock];
    double sum = 0;
    in_blocks(n, [&](int64_t first, int64_t count) {
      const T* gradient = g.read(first, count);
      if (!logarithm_) {
        products(buffer, gradient, y.read(first, count), count);
        gradient = buffer;
      }
      sum += fold_chunk<SumFold<T>, T>(gradient, count);
    });
    in_blocks(n, [&](int64_t first, int64_t count) {
      const T *gradient = g.read(first, count), *output = y.read(first, count);
      T* out = to_.target(buffer, to, first);
      const T total = static_cast<T>(sum);
      if (logarithm_) {
        log_softmax_gradient(out, gradient, output, total, count);
      } else {
        softmax_gradient(out, gradient, output, total, count);
      }
      to_.write(buffer, to, first, count);
    });
  }

  Rows rows_;
  RowTensor<T> g_, y_, to_;
  bool logarithm_;
  bool has_short_rows_;
};

template <Kind kKind>
Made forward(Call& call) {
  const BoundTensor x = call.tensor("self"), y = call.output(0);
  const size_t dim = call.dim("dim", x);
  call.require(base::is_floating(x.dtype), "it must be floating-point");
  const Rows rows(call, x, dim, std::min(dim + 1, x.sizes.size()), {&x, &y});
  if (x.dtype == base::DType::F64) return call.finish<Softmax<double>>(rows, x, y, kKind);
  return call.finish<Softmax<float>>(rows, x, y, kKind);
}

template <bool kLogarithm>
Made backward(Call& call) {
  const BoundTensor g = call.tensor("grad_output"), y = call.tensor("output"), to = call.output(0);
  const size_t dim = call.dim("dim", y);
  call.require(base::is_floating(y.dtype), "it must be floating-point");
  const Rows rows(call, y, dim, std::min(dim + 1, y.sizes.size()), {&g, &y, &to});
  if (y.dtype == base::DType::F64)
    return call.finish<SoftmaxBackward<double>>(rows, g, y, to, kLogarithm);
  return call.finish<SoftmaxBackward<float>>(rows, g, y, to, kLogarithm);
}

constexpr Row kRows[] = {
    {"aten._log_softmax.default", forward<Kind::LogSoftmax>},
    {"aten._log_softmax_backward_data.default", backward<true>},
    {"aten._safe_softmax.default", forward<Kind::SafeSoftmax>},
    {"aten._softmax.default", forward<Kind::Softmax>},
    {"aten._softmax_backward_data.default", backward<false>},
};

}  // namespace

std::span<const Row> softmax_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
