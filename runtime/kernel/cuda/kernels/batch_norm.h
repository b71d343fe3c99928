// Batch norm over the elements of a channel, and its gradients. A block takes a part of a channel;
// sums are in f64, those of parts are added in order. With xhat = (x - mean) * rstd, y = xhat *
// weight + bias. The variance that normalizes is divided by the number of elements, that in the
// running statistics by one less.
#pragma once

#include "runtime/kernel/cuda/kernels/batch_norm_parameters.h"
#include "runtime/kernel/cuda/kernels/blocks.h"
#include "runtime/kernel/cuda/kernels/numbers.h"

namespace dc::runtime::kernel::cuda {

// A part of a channel.
struct NormPart {
  NormPart(const BatchNorm& of, int64_t number)
      : norm(of), channel(number / of.parts), part(number % of.parts) {}

  // f(place in x, place in g, place in y) for the thread's elements.
  template <typename F>
  void for_each(F f) const {
    const int64_t first = part * norm.length, rest = norm.elements.count - first;
    for_each_in_block(rest < norm.length ? rest : norm.length, [&](int64_t i) {
      const Places<3> at = places_of(norm.elements, first + i);
      f(at.at[0] + channel * norm.between[0], at.at[1] + channel * norm.between[1],
        at.at[2] + channel * norm.between[2]);
    });
  }
  // The parts' sums 0 or 1 of the channel.
  double sum(int which) const {
    double total = 0;
    for (int64_t p = 0; p < norm.parts; ++p) total += *place_of_sum(p, which);
    return total;
  }
  void put_sum(int which, double own) const {
    if (threadIdx.x == 0) *place_of_sum(part, which) = own;
  }
  double* place_of_sum(int64_t p, int which) const {
    return norm.sums + 2 * (channel * norm.parts + p) + which;
  }
  // One thread of all writes what there is once for a channel.
  bool is_first() const { return part == 0 && threadIdx.x == 0; }
  template <typename C>
  C number(const Numbers& numbers, C otherwise) const {
    return numbers.data == nullptr ? otherwise : number_at<C>(numbers, channel * numbers.stride);
  }
  template <typename C>
  void put(const Numbers& numbers, C value) const {
    put_number(numbers, channel * numbers.stride, value);
  }

  const BatchNorm& norm;
  int64_t channel, part;
};

template <typename F>
inline void for_each_norm_part(const BatchNorm& norm, F f) {
  for (int64_t i = blockIdx.x; i < norm.channels * norm.parts; i += gridDim.x) f(NormPart(norm, i));
}

template <typename C>
inline C reciprocal_deviation(double variance, double eps) {
  return static_cast<C>(1.0 / scalar::sqrt(variance + eps));
}

// Training, first: sum 0 is that of the elements.
template <typename X>
inline void batch_norm_sums(const BatchNorm& parameters) {
  const X* x = static_cast<const X*>(parameters.x);
  for_each_norm_part(parameters, [&](const NormPart& part) {
    double own = 0;
    part.for_each(
        [&](int64_t at, int64_t, int64_t) { own += static_cast<double>(scalar::load(x[at])); });
    part.put_sum(0, block_sum(own));
  });
}

// Training, second: sum 1 is that of the squares of the distances from the mean.
template <typename X>
inline void batch_norm_squares(const BatchNorm& parameters) {
  using C = Computed<X>;
  const X* x = static_cast<const X*>(parameters.x);
  const auto count = static_cast<double>(parameters.elements.count);
  for_each_norm_part(parameters, [&](const NormPart& part) {
    const C mean = static_cast<C>(part.sum(0) / count);
    double own = 0;
    part.for_each([&](int64_t at, int64_t, int64_t) {
      const auto distance = static_cast<double>(scalar::load(x[at]) - mean);
      own += distance * distance;
    });
    part.put_sum(1, block_sum(own));
  });
}

template <typename X>
inline void batch_norm(const BatchNorm& parameters) {
  using C = Computed<X>;
  const X* x = static_cast<const X*>(parameters.x);
  X* y = static_cast<X*>(parameters.y);
  const auto count = static_cast<double>(parameters.elements.count);
  for_each_norm_part(parameters, [&](const NormPart& part) {
    const C old_mean = part.number(parameters.running_mean, C{0}),
            old_var = part.number(parameters.running_var, C{0});
    const auto mixed = [&](C old, double now) {
      return static_cast<C>((1 - parameters.momentum) * static_cast<double>(old) +
                            parameters.momentum * now);
    };
    C mean = old_mean, new_mean = old_mean, new_var = old_var;
    auto variance = static_cast<double>(old_var);
    if (parameters.trains) {
      const double squares = part.sum(1);
      mean = static_cast<C>(part.sum(0) / count);
      variance = squares / count;
      new_mean = mixed(old_mean, static_cast<double>(mean));
      new_var = mixed(old_var, squares / (count - 1));
    }
    const C rstd = reciprocal_deviation<C>(variance, parameters.eps);
    const C scale = rstd * part.number(parameters.weight, C{1});
    const C shift = part.number(parameters.bias, C{0});
    if (part.is_first()) {
      part.put(parameters.mean, mean);
      part.put(parameters.rstd, rstd);
      part.put(parameters.new_mean, new_mean);
      part.put(parameters.new_var, new_var);
    }
    part.for_each([&](int64_t from, int64_t, int64_t to) {
      y[to] = scalar::store<X>((scalar::load(x[from]) - mean) * scale + shift);
    });
  });
}

// The statistics that a gradient is of.
template <typename C>
struct NormStatistics {
  explicit NormStatistics(const NormPart& part) {
    const BatchNorm& norm = part.norm;
    mean = part.number(norm.trains ? norm.mean : norm.running_mean, C{0});
    rstd = norm.trains ? part.number(norm.rstd, C{0})
                       : reciprocal_deviation<C>(
                             static_cast<double>(part.number(norm.running_var, C{0})), norm.eps);
  }
  C mean, rstd;
};

// Sum 0 is that of g, sum 1 that of g * (x - mean).
template <typename X>
inline void batch_norm_gradient_sums(const BatchNorm& parameters) {
  using C = Computed<X>;
  const X* x = static_cast<const X*>(parameters.x);
  const X* g = static_cast<const X*>(parameters.g);
  for_each_norm_part(parameters, [&](const NormPart& part) {
    const C mean = NormStatistics<C>(part).mean;
    double own = 0, products = 0;
    part.for_each([&](int64_t of_x, int64_t of_g, int64_t) {
      const C gradient = scalar::load(g[of_g]);
      own += static_cast<double>(gradient);
      products += static_cast<double>(gradient * (scalar::load(x[of_x]) - mean));
    });
    part.put_sum(0, block_sum(own));
    part.put_sum(1, block_sum(products));
  });
}

// In evaluation the statistics do not depend on x.
template <typename X>
inline void batch_norm_gradients(const BatchNorm& parameters) {
  using C = Computed<X>;
  const X* x = static_cast<const X*>(parameters.x);
  const X* g = static_cast<const X*>(parameters.g);
  X* y = static_cast<X*>(parameters.y);
  const auto count = static_cast<double>(parameters.elements.count);
  for_each_norm_part(parameters, [&](const NormPart& part) {
    const NormStatistics<C> of(part);
    const double sum = part.sum(0), products = part.sum(1), rstd = static_cast<double>(of.rstd);
    if (part.is_first()) {
      part.put(parameters.of_weight, static_cast<C>(products * rstd));
      part.put(parameters.of_bias, static_cast<C>(sum));
    }
    if (y == nullptr) return;
    const C scale = of.rstd * part.number(parameters.weight, C{1});
    const C mean_of_g = parameters.trains ? static_cast<C>(sum / count) : C{0};
    const C slope = parameters.trains ? static_cast<C>(products * rstd * rstd / count) : C{0};
    part.for_each([&](int64_t of_x, int64_t of_g, int64_t to) {
      const C distance = scalar::load(x[of_x]) - of.mean;
      y[to] = scalar::store<X>((scalar::load(g[of_g]) - mean_of_g - distance * slope) * scale);
    });
  });
}

}  // namespace dc::runtime::kernel::cuda
