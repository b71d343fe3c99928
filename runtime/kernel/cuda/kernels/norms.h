// Layer norm and RMS norm of rows, and their gradients. A block takes a row; sums are made in f64.
// Gradients of weight and bias are sums over kRowsInPart rows in order, then over those parts.
#pragma once

#include "runtime/kernel/cuda/kernels/blocks.h"
#include "runtime/kernel/cuda/kernels/numbers.h"

namespace dc::runtime::kernel::cuda {

template <typename C>
inline C weight_at(const Norm& norm, int64_t column) {
  return norm.weight.data == nullptr ? C{1}
                                     : number_at<C>(norm.weight, column * norm.weight.stride);
}

template <typename X>
inline void norm_rows(const Norm& parameters) {
  using C = Computed<X>;
  const int64_t n = parameters.rows.length, step = parameters.rows.strides[0];
  const auto count = static_cast<double>(n);
  for (int64_t row = blockIdx.x; row < parameters.rows.rows.count; row += gridDim.x) {
    const Places<5> at = places_of(parameters.rows.rows, row);
    const X* x = static_cast<const X*>(parameters.x) + at.at[0];
    X* y = static_cast<X*>(parameters.y) + at.at[1];
    C mean = 0;
    if (parameters.is_centered) {
      double sum = 0;
      for_each_in_block(n,
                        [&](int64_t i) { sum += static_cast<double>(scalar::load(x[i * step])); });
      mean = static_cast<C>(block_sum(sum) / count);
    }
    double squares = 0;
    for_each_in_block(n, [&](int64_t i) {
      const auto distance = static_cast<double>(scalar::load(x[i * step]) - mean);
      squares += distance * distance;
    });
    squares = block_sum(squares);
    const C rstd = static_cast<C>(1.0 / scalar::sqrt(squares / count + parameters.eps));
    if (threadIdx.x == 0) {
      put_number(parameters.rstd, at.at[3], rstd);
      put_number(parameters.mean, at.at[4], mean);
    }
    for_each_in_block(n, [&](int64_t i) {
      C result = (scalar::load(x[i * step]) - mean) * rstd;
      if (parameters.weight.data != nullptr) result = result * weight_at<C>(parameters, i);
      if (parameters.bias.data != nullptr)
        result = result + number_at<C>(parameters.bias, i * parameters.bias.stride);
      y[i * parameters.rows.strides[1]] = scalar::store<X>(result);
    });
  }
}

// One row as its gradient sees it.
template <typename X>
struct NormRow {
  using C = Computed<X>;
  NormRow(const Norm& of, int64_t row) : norm(of) {
    const Places<5> at = places_of(of.rows.rows, row);
    x = static_cast<const X*>(of.x) + at.at[0];
    g = static_cast<const X*>(of.g) + at.at[2];
    place = at.at[1];
    rstd = number_at<C>(of.rstd, at.at[3]);
    mean = of.mean.data == nullptr ? C{0} : number_at<C>(of.mean, at.at[4]);
  }
  C gradient(int64_t i) const { return scalar::load(g[i * norm.rows.strides[2]]); }
  C normalized(int64_t i) const {
    return (scalar::load(x[i * norm.rows.strides[0]]) - mean) * rstd;
  }

  const Norm& norm;
  const X *x, *g;
  int64_t place;  // in the gradient of x
  C rstd, mean;
};

template <typename X>
inline void norm_gradients(const Norm& parameters) {
  using C = Computed<X>;
  const int64_t n = parameters.rows.length;
  const auto count = static_cast<double>(n);
  for (int64_t index = blockIdx.x; index < parameters.rows.rows.count; index += gridDim.x) {
    const NormRow<X> row(parameters, index);
    const auto weighted = [&](int64_t i) { return row.gradient(i) * weight_at<C>(parameters, i); };
    double own = 0, own_with_x = 0;
    for_each_in_block(n, [&](int64_t i) {
      const C g = weighted(i);
      own += static_cast<double>(g);
      own_with_x += static_cast<double>(g * row.normalized(i));
    });
    const double sum = block_sum(own), with_x = block_sum(own_with_x);
    const C mean = parameters.is_centered ? static_cast<C>(sum / count) : C{0};
    const C slope = static_cast<C>(with_x / count);
    X* to = static_cast<X*>(parameters.y) + row.place;
    for_each_in_block(n, [&](int64_t i) {
      to[i * parameters.rows.strides[1]] =
          scalar::store<X>(row.rstd * (weighted(i) - mean - row.normalized(i) * slope));
    });
  }
}

// A thread takes a column of a part.
template <typename X>
inline void norm_parts(const NormColumns& parameters) {
  using C = Computed<X>;
  const int64_t n = parameters.norm.rows.length, rows = parameters.norm.rows.rows.count;
  for (int64_t i = first_element<int64_t>(); i < parameters.count * n;
       i += all_threads<int64_t>()) {
    const int64_t part = i / n, column = i - part * n;
    C of_weight = 0, of_bias = 0;
    for (int64_t r = part * kRowsInPart; r < (part + 1) * kRowsInPart && r < rows; ++r) {
      const NormRow<X> row(parameters.norm, r);
      of_weight += row.gradient(column) * row.normalized(column);
      of_bias += row.gradient(column);
    }
    double* to = parameters.parts + 2 * part * n + column;
    to[0] = static_cast<double>(of_weight);
    to[n] = static_cast<double>(of_bias);
  }
}

// A thread takes a column.
inline void norm_columns(const NormColumns& parameters) {
  const int64_t n = parameters.norm.rows.length;
  for (int64_t column = first_element<int64_t>(); column < n; column += all_threads<int64_t>()) {
    double of_weight = 0, of_bias = 0;
    for (int64_t part = 0; part < parameters.count; ++part) {
      const double* from = parameters.parts + 2 * part * n + column;
      of_weight += from[0];
      of_bias += from[n];
    }
    put_number(parameters.of_weight, column * parameters.of_weight.stride, of_weight);
    put_number(parameters.of_bias, column * parameters.of_bias.stride, of_bias);
  }
}

}  // namespace dc::runtime::kernel::cuda
