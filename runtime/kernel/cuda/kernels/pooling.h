// Largest elements and averages of windows, and their gradients. A thread makes an element, so
// every order is that of the CPU's kernels: a window's elements row by row, the largest being the
// first of equals or the last NaN; what windows give to an element of a gradient in the order of
// outputs, in f32 for 16 bits. An index outside of its window gives nothing.
#pragma once

#include "runtime/kernel/cuda/kernel_words.h"
#include "runtime/kernel/cuda/kernels/numbers.h"
#include "runtime/kernel/cuda/kernels/pooling_parameters.h"

namespace dc::runtime::kernel::cuda {

// An element of `in` or `out`: its sample and channel, and where it is in its plane.
struct PlanePlace {
  int64_t sample, channel, at[kPooledDims];
};
template <bool kIsIn>
inline int64_t pooled_size(const PoolingDim& dim) {
  return kIsIn ? dim.in : dim.out;
}
template <bool kIsIn>
inline int64_t pooled_count(const Pooling& of) {
  int64_t count = of.batch * of.channels;
  for (const PoolingDim& dim : of.dims) count *= pooled_size<kIsIn>(dim);
  return count;
}
// Divisions of 32 bits are much cheaper than those of 64.
template <bool kIsIn, typename Number>
inline PlanePlace plane_place(const Pooling& of, Number rest) {
  PlanePlace place{};
  const auto take = [&rest](int64_t size) {
    const auto divisor = static_cast<Number>(size);
    const Number next = rest / divisor;
    const auto own = static_cast<int64_t>(rest - next * divisor);
    rest = next;
    return own;
  };
  for (int d = kPooledDims; d-- > 0;) place.at[d] = take(pooled_size<kIsIn>(of.dims[d]));
  place.channel = take(of.channels);
  place.sample = static_cast<int64_t>(rest);
  return place;
}
// f(place) for the thread's elements.
template <bool kIsIn, typename F>
inline void for_each_pooled(const Pooling& of, F f) {
  const int64_t count = pooled_count<kIsIn>(of);
  constexpr int64_t kFew = int64_t{1} << 31;
  for (int64_t i = first_element<int64_t>(); i < count; i += all_threads<int64_t>())
    f(count < kFew ? plane_place<kIsIn>(of, static_cast<uint32_t>(i)) : plane_place<kIsIn>(of, i));
}

template <typename E>
inline E* plane_of(const PooledTensor& tensor, const PlanePlace& place) {
  return static_cast<E*>(tensor.data) + place.sample * tensor.sample +
         place.channel * tensor.channel;
}
inline int64_t place_in_plane(const PooledTensor& tensor, const int64_t (&at)[kPooledDims]) {
  int64_t place = 0;
  for (int d = 0; d < kPooledDims; ++d) place += at[d] * tensor.dims[d];
  return place;
}
// As indices count.
inline int64_t index_in_plane(const Pooling& of, const int64_t (&at)[kPooledDims]) {
  return (at[0] * of.dims[1].in + at[1]) * of.dims[2].in + at[2];
}

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// The positions begin, begin + step ... below end; and how many elements an average divides by.
struct PooledWindow {
  int64_t begin, end, step, count;
};
inline PooledWindow window_of(const PoolingDim& dim, int64_t output) {
  if (dim.is_adaptive) {
    const int64_t begin = output * dim.in / dim.out,
                  end = ((output + 1) * dim.in + dim.out - 1) / dim.out;
    return {begin, end, 1, end - begin};
  }
  const int64_t from = output * dim.stride - dim.padding;
  const int64_t to = from + (dim.size - 1) * dim.dilation + 1;
  PooledWindow window{from, smaller(to, dim.in), dim.dilation, 1};
  if (from < 0) window.begin = from + (-from + dim.dilation - 1) / dim.dilation * dim.dilation;
  window.begin = smaller(window.begin, dim.in);
  if (window.end < window.begin) window.end = window.begin;
  const int64_t count =
      dim.counts_padding ? smaller(to, dim.in + dim.padding) - from : window.end - window.begin;
  if (count > 1) window.count = count;
  return window;
}
// The outputs [begin, end) whose windows may have a position: all that have it are among them.
inline PooledWindow outputs_with(const PoolingDim& dim, int64_t position) {
  if (dim.is_adaptive)
    return {position * dim.out / dim.in, ((position + 1) * dim.out + dim.in - 1) / dim.in, 1, 0};
  const int64_t last = (position + dim.padding) / dim.stride + 1;
  const int64_t before = position + dim.padding - (dim.size - 1) * dim.dilation;
  return {before <= 0 ? 0 : (before + dim.stride - 1) / dim.stride, smaller(last, dim.out), 1, 0};
}

// f(where) for all of the windows' positions, or outputs, row by row.
template <typename F>
inline void for_each_in_window(const PooledWindow (&window)[kPooledDims], F f) {
  int64_t at[kPooledDims];
  for (at[0] = window[0].begin; at[0] < window[0].end; at[0] += window[0].step)
    for (at[1] = window[1].begin; at[1] < window[1].end; at[1] += window[1].step)
      for (at[2] = window[2].begin; at[2] < window[2].end; at[2] += window[2].step) f(at);
}

template <typename C>
inline C divisor_of(const Pooling& of, const int64_t (&output)[kPooledDims]) {
  if (of.divisor != 0) return static_cast<C>(of.divisor);
  C divisor = 1;
  for (int d = 0; d < kPooledDims; ++d)
    divisor *= static_cast<C>(window_of(of.dims[d], output[d]).count);
  return divisor;
}

template <typename E>
inline void max_pool(const Pooling& parameters) {
  using C = Computed<E>;
  for_each_pooled<false>(parameters, [&](const PlanePlace& output) {
    const E* in = plane_of<E>(parameters.in, output);
    PooledWindow window[kPooledDims];
    int64_t first[kPooledDims];
    for (int d = 0; d < kPooledDims; ++d) {
      window[d] = window_of(parameters.dims[d], output.at[d]);
      first[d] = window[d].begin;
    }
    C largest = -static_cast<C>(scalar::numeric_limits<float>::infinity());
    int64_t index = index_in_plane(parameters, first);
    for_each_in_window(window, [&](const int64_t(&at)[kPooledDims]) {
      const C x = scalar::load(in[place_in_plane(parameters.in, at)]);
      if (!(x > largest || x != x)) return;
      largest = x;
      index = index_in_plane(parameters, at);
    });
    plane_of<E>(parameters.out, output)[place_in_plane(parameters.out, output.at)] =
        scalar::store<E>(largest);
    if (parameters.indices.data != nullptr)
      plane_of<int64_t>(parameters.indices, output)[place_in_plane(parameters.indices, output.at)] =
          index;
  });
}

template <typename E>
inline void average_pool(const Pooling& parameters) {
  using C = Computed<E>;
  for_each_pooled<false>(parameters, [&](const PlanePlace& output) {
    const E* in = plane_of<E>(parameters.in, output);
    PooledWindow window[kPooledDims];
    for (int d = 0; d < kPooledDims; ++d) window[d] = window_of(parameters.dims[d], output.at[d]);
    C sum = 0;
    for_each_in_window(window, [&](const int64_t(&at)[kPooledDims]) {
      sum += scalar::load(in[place_in_plane(parameters.in, at)]);
    });
    plane_of<E>(parameters.out, output)[place_in_plane(parameters.out, output.at)] =
        scalar::store<E>(sum / divisor_of<C>(parameters, output.at));
  });
}

// An element is the sum of what f(plane of `out`, input, output) says for the outputs that may have
// it.
template <typename E, typename F>
inline void pool_gradients(const Pooling& parameters, F f) {
  using C = Computed<E>;
  for_each_pooled<true>(parameters, [&](const PlanePlace& input) {
    PooledWindow outputs[kPooledDims];
    for (int d = 0; d < kPooledDims; ++d)
      outputs[d] = outputs_with(parameters.dims[d], input.at[d]);
    C sum = 0;
    for_each_in_window(outputs,
                       [&](const int64_t(&output)[kPooledDims]) { f(sum, input, output); });
    plane_of<E>(parameters.in, input)[place_in_plane(parameters.in, input.at)] =
        scalar::store<E>(sum);
  });
}

template <typename E>
inline void max_pool_gradients(const Pooling& parameters) {
  using C = Computed<E>;
  pool_gradients<E>(parameters, [&](C& sum, const PlanePlace& input,
                                    const int64_t(&output)[kPooledDims]) {
    const int64_t* indices = plane_of<int64_t>(parameters.indices, input);
    if (indices[place_in_plane(parameters.indices, output)] == index_in_plane(parameters, input.at))
      sum +=
          scalar::load(plane_of<E>(parameters.out, input)[place_in_plane(parameters.out, output)]);
  });
}

template <typename E>
inline void average_pool_gradients(const Pooling& parameters) {
  using C = Computed<E>;
  pool_gradients<E>(parameters, [&](C& sum, const PlanePlace& input,
                                    const int64_t(&output)[kPooledDims]) {
    sum +=
        scalar::load(plane_of<E>(parameters.out, input)[place_in_plane(parameters.out, output)]) /
        divisor_of<C>(parameters, output);
  });
}

}  // namespace dc::runtime::kernel::cuda
