// native_layer_norm and _fused_rms_norm over the last dims, and their gradients.
//
// With xhat = (x - mean) * rstd (rms_norm: mean 0), y = xhat * weight + bias. Sums along a row are
// in the order of fold.h. Gradients of weight and bias are sums over rows: 64 rows are added in
// order in f32, then these sums.
#include <array>
#include <cmath>
#include <utility>

#include "runtime/kernel/native/norms/norm_call.h"
#include "runtime/kernel/native/reductions/fold.h"
#include "runtime/kernel/native/registry.h"

namespace dc::runtime::kernel::native {
namespace {

template <typename T>
DC_VECTOR_CLONES void normalize(T* __restrict out, const T* x, const T* weight, const T* bias,
                                T mean, T rstd, int64_t n) {
  if (weight != nullptr && bias != nullptr) {
    for (int64_t i = 0; i < n; ++i) out[i] = (x[i] - mean) * rstd * weight[i] + bias[i];
  } else if (weight != nullptr) {
    for (int64_t i = 0; i < n; ++i) out[i] = (x[i] - mean) * rstd * weight[i];
  } else {
    for (int64_t i = 0; i < n; ++i)
      out[i] = (x[i] - mean) * rstd + (bias != nullptr ? bias[i] : T{});
  }
}
// Sums of n <= kBlock elements in the order of fold.h: of g * weight, and of that times xhat.
struct WeighedSums {
  double g = 0, with_x = 0;
};
template <bool kWeighs, typename T>
DC_VECTOR_CLONES WeighedSums weighed_sums(const T* g, const T* x, const T* weight, T mean, T rstd,
                                          int64_t n) {
  using W = Wide<T>;
  const int64_t full = n - n % kFoldLanes;
  typename W::Vector sums[W::kVectors] = {}, products[W::kVectors] = {};
  for (int64_t i = 0; i < full; i += kFoldLanes) {
#pragma GCC unroll 8
    for (int64_t k = 0; k < W::kVectors; ++k) {
      const int64_t at = i + k * W::kWidth;
      typename W::Vector weighted = *reinterpret_cast<const typename W::InMemory*>(g + at);
      if constexpr (kWeighs)
        weighted = weighted * *reinterpret_cast<const typename W::InMemory*>(weight + at);
      const typename W::Vector distance =
          *reinterpret_cast<const typename W::InMemory*>(x + at) - mean;
      sums[k] = sums[k] + weighted;
      products[k] = products[k] + weighted * (distance * rstd);
    }
  }
  const auto weighted = [&](int64_t i) {
    return kWeighs ? g[full + i] * weight[full + i] : g[full + i];
  };
  join_rest<SumFold<T>, T>(sums, n - full, weighted);
  join_rest<SumFold<T>, T>(products, n - full,
                           [&](int64_t i) { return weighted(i) * ((x[full + i] - mean) * rstd); });
  return {static_cast<double>(join_vectors<SumFold<T>, T>(sums)),
          static_cast<double>(join_vectors<SumFold<T>, T>(products))};
}
template <typename T>
DC_VECTOR_CLONES void gradient_of_x(T* __restrict out, const T* g, const T* x, const T* weight,
                                    T mean, T rstd, T sum, T sum_with_x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const T weighted = weight != nullptr ? g[i] * weight[i] : g[i];
    out[i] = rstd * (weighted - sum - (x[i] - mean) * rstd * sum_with_x);
  }
}
// A block of a row, and the row's numbers.
template <typename T>
struct RowPart {
  const T *g, *x;
  T mean, rstd;
};
constexpr int64_t kTogether = 4;  // rows whose gradients are added at once
template <int64_t kRows, typename T>
[[gnu::always_inline]] inline void add_gradients_of(T* __restrict of_weight, T* __restrict of_bias,
                                                    const RowPart<T>* rows, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    T weight = of_weight[i], bias = of_bias[i];
#pragma GCC unroll 4
    for (int64_t k = 0; k < kRows; ++k) {
      const RowPart<T>& row = rows[k];
      weight += row.g[i] * ((row.x[i] - row.mean) * row.rstd);
      bias += row.g[i];
    }
    of_weight[i] = weight;
    of_bias[i] = bias;
  }
}
template <typename T>
DC_VECTOR_CLONES void add_gradients(T* of_weight, T* of_bias, const RowPart<T>* rows, int64_t count,
                                    int64_t n) {
  if (count == kTogether) return add_gradients_of<kTogether>(of_weight, of_bias, rows, n);
  for (int64_t k = 0; k < count; ++k) add_gradients_of<1>(of_weight, of_bias, rows + k, n);
}
template <typename T>
DC_VECTOR_CLONES void add(T* __restrict to, T* __restrict from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    to[i] += from[i];
    from[i] = T{};
  }
}

// What both norms have: the tensors of an instruction, as rows.
template <typename T>
struct NormTensors {
  Rows rows;             // in the order of NormCall
  bool centered = true;  // layer norm
  RowTensor<T> x, g, y, mean, rstd, weight, bias, weight_gradient, bias_gradient;
  double eps = 0;
};

// A row that all others are weighed with: as lanes, where it lies or converted at each launch.
template <typename T>
class CommonRow {
 public:
  CommonRow(const RowTensor<T>& tensor, int64_t length) : tensor_(tensor), length_(length) {
    if (tensor.given() && !tensor.reader().direct) lanes_.resize(static_cast<size_t>(length));
  }
  const T* on(const device::Stream& stream) {
    if (!tensor_.given() || length_ == 0) return nullptr;
    return tensor_.read(lanes_.data(), tensor_.on(stream), 0, length_);
  }

 private:
  RowTensor<T> tensor_;
  int64_t length_;
  std::vector<T> lanes_;
};

template <typename T>
const T* behind(const T* row, int64_t first) {
  return row == nullptr ? nullptr : row + first;
}

template <typename T>
class NormForward final : public Kernel {
 public:
  explicit NormForward(const NormTensors<T>& t)
      : t_(t), weight_(t.weight, t.rows.length()), bias_(t.bias, t.rows.length()) {}

  base::Status launch(device::Stream& stream) override {
    std::byte *x = t_.x.on(stream), *y = t_.y.on(stream), *rstd = t_.rstd.on(stream);
    std::byte* mean = t_.mean.on(stream);
    const T *weight = weight_.on(stream), *bias = bias_.on(stream);
    t_.rows.for_each([&](const Offsets& at) {
      RowBlocks<T> from(t_.x, t_.x.row(x, at[0]));
      const std::pair<T, T> mean_and_rstd = moments(from);
      const T center = mean_and_rstd.first, scale = mean_and_rstd.second;
      if (t_.mean.given()) t_.mean.put(mean, at[4], center);
      if (t_.rstd.given()) t_.rstd.put(rstd, at[3], scale);
      std::byte* to = t_.y.row(y, at[1]);
      in_blocks(t_.rows.length(), [&](int64_t first, int64_t n) {
        alignas(64) T out[kBlock];
        normalize(t_.y.target(out, to, first), from.read(first, n), behind(weight, first),
                  behind(bias, first), center, scale, n);
        t_.y.write(out, to, first, n);
      });
    });
    return {};
  }

 private:
  std::pair<T, T> moments(RowBlocks<T>& x) const {
    const int64_t length = t_.rows.length();
    const auto count = static_cast<double>(length);
    double sum = 0, squares = 0;
    if (t_.centered) {
      in_blocks(length, [&](int64_t first, int64_t n) {
        sum += static_cast<double>(fold_chunk<SumFold<T>, T>(x.read(first, n), n));
      });
    }
    const T mean = static_cast<T>(sum / count);
    in_blocks(length, [&](int64_t first, int64_t n) {
      squares += sum_of_squares(x.read(first, n), mean, n);
    });
    return {mean, static_cast<T>(1.0 / std::sqrt(squares / count + t_.eps))};
  }

  NormTensors<T> t_;
  CommonRow<T> weight_, bias_;
};

template <typename T>
class NormBackward final : public Kernel {
 public:
  explicit NormBackward(const NormTensors<T>& t) : t_(t), weight_(t.weight, t.rows.length()) {
    if (t.weight_gradient.given() || t.bias_gradient.given())
      sums_.resize(4 * static_cast<size_t>(t.rows.length()));
  }

  base::Status launch(device::Stream& stream) override {
    std::byte *x = t_.x.on(stream), *g = t_.g.on(stream), *y = t_.y.on(stream);
    std::byte *rstds = t_.rstd.on(stream), *means = t_.mean.on(stream);
    const T* weight = weight_.on(stream);
    std::fill(sums_.begin(), sums_.end(), T{});
    Row rows[kTogether];
    int64_t count = 0;
    t_.rows.for_each([&](const Offsets& at) {
      Row& row = rows[count % kTogether];
      row = {t_.x.row(x, at[0]), t_.g.row(g, at[2]),
             t_.mean.given() ? t_.mean.get(means, at[4]) : T{}, t_.rstd.get(rstds, at[3])};
      if (t_.y.given()) write_gradient(row, weight, t_.y.row(y, at[1]));
      if (++count % kTogether == 0) add_rows(rows, kTogether);
      if (count % kRowsInPart == 0) join_parts();
    });
    add_rows(rows, count % kTogether);
    join_parts();
    store(stream, t_.weight_gradient, 2);
    store(stream, t_.bias_gradient, 3);
    return {};
  }

 private:
  static constexpr int64_t kRowsInPart = 64;
  static_assert(kRowsInPart % kTogether == 0);
  struct Row {
    const std::byte *x, *g;
    T mean, rstd;
  };
  T* part(size_t index) { return sums_.data() + index * t_.rows.length(); }

  void add_rows(const Row* rows, int64_t count) {
    if (sums_.empty() || count == 0) return;
    in_blocks(t_.rows.length(), [&](int64_t first, int64_t n) {
      alignas(64) T in[kTogether][kBlock], gradients[kTogether][kBlock];
      RowPart<T> parts[kTogether];
      for (int64_t k = 0; k < count; ++k) {
        parts[k] = {t_.g.read(gradients[k], rows[k].g, first, n),
                    t_.x.read(in[k], rows[k].x, first, n), rows[k].mean, rows[k].rstd};
      }
      add_gradients(part(0) + first, part(1) + first, parts, count, n);
    });
  }
  void join_parts() {
    if (sums_.empty()) return;
    add(part(2), part(0), t_.rows.length());
    add(part(3), part(1), t_.rows.length());
  }

  void write_gradient(const Row& row, const T* weight, std::byte* to) const {
    const int64_t length = t_.rows.length();
    RowBlocks<T> g(t_.g, row.g), x(t_.x, row.x);
    WeighedSums sums;
    in_blocks(length, [&](int64_t first, int64_t n) {
      const T *gradient = g.read(first, n), *from = x.read(first, n);
      const WeighedSums more =
          weight != nullptr
              ? weighed_sums<true>(gradient, from, weight + first, row.mean, row.rstd, n)
              : weighed_sums<false>(gradient, from, weight, row.mean, row.rstd, n);
      sums.g += more.g;
      sums.with_x += more.with_x;
    });
    const auto count = static_cast<double>(length);
    const T mean_of_g = t_.centered ? static_cast<T>(sums.g / count) : T{};
    const T slope = static_cast<T>(sums.with_x / count);
    in_blocks(length, [&](int64_t first, int64_t n) {
      alignas(64) T out[kBlock];
      gradient_of_x(t_.y.target(out, to, first), g.read(first, n), x.read(first, n),
                    behind(weight, first), row.mean, row.rstd, mean_of_g, slope, n);
      t_.y.write(out, to, first, n);
    });
  }

  void store(const device::Stream& stream, const RowTensor<T>& tensor, size_t index) {
    if (!tensor.given()) return;
    std::byte* to = tensor.on(stream);
    in_blocks(t_.rows.length(), [&](int64_t first, int64_t n) {
      const T* sums = part(index) + first;
      alignas(64) T buffer[kBlock];
      std::copy_n(sums, n, tensor.target(buffer, to, first));
      tensor.write(sums, to, first, n);
    });
  }

  NormTensors<T> t_;
  CommonRow<T> weight_;
  std::vector<T> sums_;  // of weight and bias: of the last rows, then of all
};

// A tensor of the normalized shape: one row.
template <typename T>
RowTensor<T> one_row(Call& call, const BoundTensor& tensor, int64_t length) {
  call.require(tensor.numel() == length, "a weight has another shape than a row");
  BoundTensor row = tensor;
  const Rows rows(call, row, 0, tensor.sizes.size(), {&row});
  return RowTensor<T>(tensor, rows.stride(0));
}

template <typename T>
NormTensors<T> tensors_of(Call& call, const NormCall& norm) {
  NormTensors<T> t;
  t.rows = norm.rows;
  t.centered = norm.is_centered;
  t.eps = norm.eps;
  t.x = RowTensor<T>(norm.x, t.rows.stride(0));
  if (norm.y) t.y = RowTensor<T>(*norm.y, t.rows.stride(1));
  if (norm.g) t.g = RowTensor<T>(*norm.g, t.rows.stride(2));
  if (norm.rstd) t.rstd = RowTensor<T>(*norm.rstd, 1);
  if (norm.mean) t.mean = RowTensor<T>(*norm.mean, 1);
  const auto row = [&](const std::optional<BoundTensor>& tensor) {
    return tensor && call.ok() ? one_row<T>(call, *tensor, t.rows.length()) : RowTensor<T>();
  };
  t.weight = row(norm.weight);
  t.bias = row(norm.bias);
  t.weight_gradient = row(norm.weight_gradient);
  t.bias_gradient = row(norm.bias_gradient);
  return t;
}

template <template <typename> class K>
Made make_norm(Call& call, const NormCall& norm) {
  if (!call.ok()) return call.made(nullptr);
  return norm.x.dtype == base::DType::F64 ? call.finish<K<double>>(tensors_of<double>(call, norm))
                                          : call.finish<K<float>>(tensors_of<float>(call, norm));
}
Made forward(Call& call) { return make_norm<NormForward>(call, read_norm(call)); }
Made backward(Call& call) { return make_norm<NormBackward>(call, read_norm_gradients(call)); }

constexpr native::Row kRows[] = {
    {"aten._fused_rms_norm.default", forward},
    {"aten._fused_rms_norm_backward.default", backward},
    {"aten.native_layer_norm.default", forward},
    {"aten.native_layer_norm_backward.default", backward},
};

}  // namespace

std::span<const Row> norm_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
