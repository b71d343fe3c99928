// histc. A block counts the elements of a part by reading all, so nothing is added atomically. A
// range that has no equal parts gives NaN, which ends the run.
#pragma once

#include "runtime/kernel/cuda/kernels/blocks.h"
#include "runtime/kernel/cuda/kernels/order_parameters.h"
#include "runtime/kernel/scalar/elements.h"

namespace dc::runtime::kernel::cuda {

// One block: the smallest and the largest element, NaN if one is NaN. If these are equal, one is
// added on both sides.
template <typename T>
inline void histogram_ends(const Histogram& parameters) {
  const T* from = static_cast<const T*>(parameters.from);
  double low = -minus_infinity<double>(), high = minus_infinity<double>();
  for_each_in_block(parameters.walk.count, [&](int64_t i) {
    const auto x = static_cast<double>(scalar::load(from[places_of(parameters.walk, i).at[0]]));
    low = -larger(-low, -x);
    high = larger(high, x);
  });
  low = -block_largest(-low);
  high = block_largest(high);
  if (threadIdx.x != 0) return;
  const bool is_point = low == high;
  parameters.ends[0] = is_point ? low - 1 : low;
  parameters.ends[1] = is_point ? high + 1 : high;
}

template <typename From, typename To>
inline void histogram(const Histogram& parameters) {
  const From* from = static_cast<const From*>(parameters.from);
  To* to = static_cast<To*>(parameters.to);
  const bool has_ends = parameters.ends != nullptr;
  const double low = has_ends ? parameters.ends[0] : parameters.low,
               high = has_ends ? parameters.ends[1] : parameters.high;
  const auto bins = static_cast<double>(parameters.bins);
  const double whole = (high - low) * bins;
  const bool has_parts = low <= high && whole - whole == 0;
  // Each operation is rounded to the elements' type, as on CPUs.
  const auto rounded = [](double x) {
    return static_cast<double>(scalar::load(scalar::store<From>(x)));
  };
  const double first = rounded(low), last = rounded(high);
  const double width = rounded(last - first), parts = rounded(bins);
  for (int64_t bin = blockIdx.x; bin < parameters.bins; bin += gridDim.x) {
    double own = 0;
    for_each_in_block(parameters.walk.count, [&](int64_t i) {
      const auto x = static_cast<double>(scalar::load(from[places_of(parameters.walk, i).at[0]]));
      if (!(x >= first && x <= last) || !has_parts) return;
      // Without a width, of equal elements so large that one more makes no difference, or with one
      // that the type does not hold: the middle.
      const double place = rounded(rounded(rounded(x - first) * parts) / width);
      auto part = place - place == 0 ? static_cast<int64_t>(place) : parameters.bins / 2;
      if (part >= parameters.bins) part = parameters.bins - 1;
      if (part == bin) own += 1;
    });
    own = block_sum(own);
    if (threadIdx.x == 0)
      to[bin * parameters.to_stride] = scalar::store<To>(
          has_parts ? own : static_cast<double>(scalar::numeric_limits<float>::quiet_NaN()));
  }
}

}  // namespace dc::runtime::kernel::cuda
