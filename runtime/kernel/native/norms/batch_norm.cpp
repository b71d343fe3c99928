// Batch norm over tensors [batch, channels, ...] of any strides, and its gradients.
//
// With xhat = (x - mean) * rstd of a channel, y = xhat * weight + bias. A row is what lies along
// the innermost dims of a channel that have one distance; sums are of blocks: several whole
// rows of less than 128 elements, or a longer one or its parts, in the order of fold.h, and in f64
// from block to block. Channels next to each other are in batch_norm_neighbours.cpp. As in
// PyTorch, the variance that normalizes is divided by the number of elements, that in the running
// statistics by one less.
#include "runtime/kernel/native/norms/batch_norm.h"

#include "runtime/kernel/native/norms/batch_norm_call.h"
#include "runtime/kernel/native/norms/batch_norm_tensors.h"
#include "runtime/kernel/native/operator_rows.h"
#include "runtime/kernel/native/reductions/fold.h"

namespace dc::runtime::kernel::native {
namespace {

// Sums of n <= kBlock elements in the order of fold.h: of g, and of g * (x - mean).
struct GradientSums {
  double g = 0, products = 0;
};
template <typename T, typename E>
DC_VECTOR_CLONES GradientSums gradient_sums(const E* g, const E* x, T mean, int64_t n) {
  using W = Wide<T>;
  const int64_t full = n - n % kFoldLanes;
  typename W::Vector sums[W::kVectors] = {}, products[W::kVectors] = {};
  for (int64_t i = 0; i < full; i += kFoldLanes) {
#pragma GCC unroll 8
    for (int64_t k = 0; k < W::kVectors; ++k) {
      typename W::Vector gradient, distance;
      read_vector<T>(gradient, g + i + k * W::kWidth);
      read_vector<T>(distance, x + i + k * W::kWidth);
      distance = distance - mean;
      sums[k] = sums[k] + gradient;
      products[k] = products[k] + gradient * distance;
    }
  }
  const auto gradient = [&](int64_t i) { return T{native::load(g[full + i])}; };
  join_rest<SumFold<T>, T>(sums, n - full, gradient);
  join_rest<SumFold<T>, T>(products, n - full, [&](int64_t i) {
    return gradient(i) * (T{native::load(x[full + i])} - mean);
  });
  return {static_cast<double>(join_vectors<SumFold<T>, T>(sums)),
          static_cast<double>(join_vectors<SumFold<T>, T>(products))};
}

template <typename T, typename E>
DC_VECTOR_CLONES void scale_and_shift(E* __restrict out, const E* x, T mean, T scale, T shift,
                                      int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    out[i] = native::store<E>((native::load(x[i]) - mean) * scale + shift);
}
template <typename T, typename E>
DC_VECTOR_CLONES void channel_gradient(E* __restrict out, const E* g, const E* x, T mean,
                                       T mean_of_g, T slope, T scale, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const T distance = native::load(x[i]) - mean;
    out[i] = native::store<E>((native::load(g[i]) - mean_of_g - distance * slope) * scale);
  }
}

template <typename T>
class BatchNorm final : public Kernel {
 public:
  explicit BatchNorm(const BatchNormTensors<T>& t) : t_(t) {}

  base::Status launch(device::Stream& stream) override {
    std::byte *x = t_.x.on(stream), *y = t_.y.on(stream);
    for (int64_t channel = 0; channel < t_.channels.count(); ++channel) {
      const T old_mean = t_.running_mean.get(stream, channel);
      const T old_var = t_.running_var.get(stream, channel);
      T mean = old_mean, new_mean = old_mean, new_var = old_var;
      double variance = static_cast<double>(old_var);
      if (t_.trains) {
        const auto count = static_cast<double>(t_.channels.elements());
        mean = static_cast<T>(sum(x, channel) / count);
        const double squares = square_sum(x, channel, mean);
        variance = squares / count;
        new_mean = mixed(old_mean, static_cast<double>(mean));
        new_var = mixed(old_var, squares / (count - 1));
      }
      const T rstd = reciprocal_deviation<T>(variance, t_.eps);
      t_.new_mean.put(stream, channel, new_mean);
      t_.new_var.put(stream, channel, new_var);
      t_.mean.put(stream, channel, mean);
      t_.rstd.put(stream, channel, rstd);
      const T scale = rstd * t_.weight.get(stream, channel, T{1});
      const T shift = t_.bias.get(stream, channel);
      t_.channels.for_each_chunk(channel, [&](const Chunk& chunk) {
        if (t_.is_bf16_in(chunk)) {
          scale_and_shift(bf16_of(t_.y, y, chunk, 1), bf16_of(t_.x, x, chunk, 0), mean, scale,
                          shift, chunk.count());
          return;
        }
        alignas(64) T in[kBlock], out[kBlock];
        const T* from = read_chunk(t_.x, x, chunk, 0, in);
        scale_and_shift(chunk_target(t_.y, y, chunk, 1, out), from, mean, scale, shift,
                        chunk.count());
        write_chunk(t_.y, t_.store, y, chunk, 1, out);
      });
    }
    return {};
  }

 private:
  T mixed(T old, double now) const {
    return static_cast<T>((1 - t_.momentum) * static_cast<double>(old) + t_.momentum * now);
  }

  double sum(std::byte* x, int64_t channel) const {
    return over_elements(x, channel, [](const auto* from, int64_t n) {
      return static_cast<double>(fold_long_chunk<SumFold<T>, T>(from, n));
    });
  }
  double square_sum(std::byte* x, int64_t channel, T mean) const {
    return over_elements(
        x, channel, [mean](const auto* from, int64_t n) { return sum_of_squares(from, mean, n); });
  }
  // The sum of f(elements, how many) over the chunks of a channel.
  template <typename F>
  double over_elements(std::byte* x, int64_t channel, F&& f) const {
    double total = 0;
    t_.channels.for_each_chunk(channel, [&](const Chunk& chunk) {
      alignas(64) T in[kBlock];
      total += t_.is_bf16_in(chunk) ? f(bf16_of(t_.x, x, chunk, 0), chunk.count())
                                    : f(read_chunk(t_.x, x, chunk, 0, in), chunk.count());
    });
    return total;
  }

  BatchNormTensors<T> t_;
};

template <typename T>
class BatchNormBackward final : public Kernel {
 public:
  explicit BatchNormBackward(const BatchNormTensors<T>& t) : t_(t) {}

  base::Status launch(device::Stream& stream) override {
    std::byte *x = t_.x.on(stream), *g = t_.g.on(stream), *y = t_.y.on(stream);
    const auto count = static_cast<double>(t_.channels.elements());
    for (int64_t channel = 0; channel < t_.channels.count(); ++channel) {
      const T mean = (t_.trains ? t_.mean : t_.running_mean).get(stream, channel);
      const T rstd = t_.trains
                         ? t_.rstd.get(stream, channel)
                         : reciprocal_deviation<T>(t_.running_var.get(stream, channel), t_.eps);
      const GradientSums sums = sums_of(x, g, channel, mean);
      t_.weight_gradient.put(stream, channel, static_cast<T>(sums.products * rstd));
      t_.bias_gradient.put(stream, channel, static_cast<T>(sums.g));
      if (!t_.y.given()) continue;
      const T scale = rstd * t_.weight.get(stream, channel, T{1});
      // In evaluation the statistics do not depend on x.
      const T mean_of_g = t_.trains ? static_cast<T>(sums.g / count) : T{};
      const T slope = t_.trains ? static_cast<T>(sums.products * rstd * rstd / count) : T{};
      t_.channels.for_each_chunk(channel, [&](const Chunk& chunk) {
        if (t_.is_bf16_in(chunk)) {
          channel_gradient(bf16_of(t_.y, y, chunk, 2), bf16_of(t_.g, g, chunk, 1),
                           bf16_of(t_.x, x, chunk, 0), mean, mean_of_g, slope, scale,
                           chunk.count());
          return;
        }
        alignas(64) T in[kBlock], gradients[kBlock], out[kBlock];
        const T* from = read_chunk(t_.x, x, chunk, 0, in);
        const T* gradient = read_chunk(t_.g, g, chunk, 1, gradients);
        channel_gradient(chunk_target(t_.y, y, chunk, 2, out), gradient, from, mean, mean_of_g,
                         slope, scale, chunk.count());
        write_chunk(t_.y, t_.store, y, chunk, 2, out);
      });
    }
    return {};
  }

 private:
  GradientSums sums_of(std::byte* x, std::byte* g, int64_t channel, T mean) const {
    GradientSums sums;
    t_.channels.for_each_chunk(channel, [&](const Chunk& chunk) {
      alignas(64) T in[kBlock], gradients[kBlock];
      const GradientSums own =
          t_.is_bf16_in(chunk)
              ? gradient_sums(bf16_of(t_.g, g, chunk, 1), bf16_of(t_.x, x, chunk, 0), mean,
                              chunk.count())
              : gradient_sums(read_chunk(t_.g, g, chunk, 1, gradients),
                              read_chunk(t_.x, x, chunk, 0, in), mean, chunk.count());
      sums.g += own.g;
      sums.products += own.products;
    });
    return sums;
  }

  BatchNormTensors<T> t_;
};

bool are_dense_bf16(const Channels& channels, std::initializer_list<const BoundTensor*> tensors) {
  size_t number = 0;
  return std::ranges::all_of(tensors, [&](const BoundTensor* tensor) {
    return tensor->dtype == base::DType::BF16 && channels.row_stride(number++) == 1;
  });
}

// Forward the channels are of x and y; backward of x, g and the gradient of x.
template <typename T>
BatchNormTensors<T> tensors_of(Call& call, const BatchNormCall& of) {
  BatchNormTensors<T> t;
  const BoundTensor &x = of.x, &y = of.y ? *of.y : x;
  t.trains = of.trains;
  t.momentum = of.momentum;
  t.eps = of.eps;
  t.channels = of.g ? Channels(call, {&x, &*of.g, &y}) : Channels(call, {&x, &y});
  t.x = RowTensor<T>(x, t.channels.row_stride(0));
  if (of.g) t.g = RowTensor<T>(*of.g, t.channels.row_stride(1));
  if (of.y) t.y = RowTensor<T>(y, t.channels.row_stride(of.g ? 2 : 1));
  t.store = storer(kLaneOf<T>, y.dtype);
  t.are_bf16 =
      of.g ? are_dense_bf16(t.channels, {&x, &*of.g, &y}) : are_dense_bf16(t.channels, {&x, &y});
  t.weight = PerChannel<T>(of.weight);
  t.bias = PerChannel<T>(of.bias);
  t.running_mean = PerChannel<T>(of.running_mean);
  t.running_var = PerChannel<T>(of.running_var);
  t.mean = PerChannel<T>(of.mean);
  t.rstd = PerChannel<T>(of.rstd);
  t.new_mean = PerChannel<T>(of.new_mean);
  t.new_var = PerChannel<T>(of.new_var);
  t.weight_gradient = PerChannel<T>(of.weight_gradient);
  t.bias_gradient = PerChannel<T>(of.bias_gradient);
  return t;
}

template <typename T>
Made make(Call& call, const BatchNormCall& of) {
  const BatchNormTensors<T> t = tensors_of<T>(call, of);
  const bool are_neighbours = t.channels.are_neighbours();
  if (!call.ok()) return call.made(nullptr);
  if (of.is_gradient)
    return are_neighbours ? call.made(batch_norm_backward_of_neighbours(t))
                          : call.finish<BatchNormBackward<T>>(t);
  return are_neighbours ? call.made(batch_norm_of_neighbours(t)) : call.finish<BatchNorm<T>>(t);
}

Made make_batch_norm(Call& call) {
  const BatchNormCall of = read_batch_norm(call);
  if (!call.ok()) return call.made(nullptr);
  return of.x.dtype == base::DType::F64 ? make<double>(call, of) : make<float>(call, of);
}

constexpr auto kBatchNorms = operator_rows<native::Row>(kBatchNormOperators, make_batch_norm);

}  // namespace

std::span<const Row> batch_norm_kernels() { return kBatchNorms; }

}  // namespace dc::runtime::kernel::native
