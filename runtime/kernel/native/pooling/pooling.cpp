// Largest elements and averages of windows over the last two or three dims, and their gradients.
//
// A window's elements are taken in row-major order. Each element of an input's gradient is the sum,
// in the order of outputs, of what the windows that have it give, 16-bit ones summed in f32. An
// index outside of its plane gives nothing.
#include "runtime/kernel/native/pooling/pooling.h"

#include <limits>
#include <optional>

#include "runtime/kernel/native/pooling/windows.h"

namespace dc::runtime::kernel::native {
namespace {

// A tensor as batch, channels, depth, height, width.
struct Planes {
  void* data = nullptr;  // on the device
  int64_t batch = 1, channels = 1;
  int64_t strides[5] = {0, 0, 0, 0, 0};

  Planes() = default;
  Planes(const BoundTensor& tensor, size_t dims) : data(tensor.data) {
    const size_t all = tensor.sizes.size(), outer = all - dims;
    channels = tensor.sizes[outer - 1];
    strides[1] = tensor.strides[outer - 1];
    if (outer == 2) {
      batch = tensor.sizes[0];
      strides[0] = tensor.strides[0];
    }
    for (size_t i = 0; i < dims; ++i) strides[5 - dims + i] = tensor.strides[outer + i];
  }

  template <typename E>
  E* on(const device::Stream& stream) const {
    return static_cast<E*>(stream.resolve(data));
  }
  int64_t plane(int64_t sample, int64_t channel) const {
    return sample * strides[0] + channel * strides[1];
  }
  int64_t at(int64_t d, int64_t h, int64_t w) const {
    return d * strides[2] + h * strides[3] + w * strides[4];
  }
};

template <typename E>
using LaneOf = decltype(native::load(E{}));

// f(d, h) for every row of the window.
template <typename F>
void over_rows(const Pooled& pooled, const Window (&window)[3], F&& f) {
  for (int64_t d = window[0].begin; d < window[0].end; d += pooled.dims[0].step())
    for (int64_t h = window[1].begin; h < window[1].end; h += pooled.dims[1].step()) f(d, h);
}

// f(d, h, w, window) for every output of a plane.
template <typename F>
void over_outputs(const Pooled& pooled, F&& f) {
  const PooledDim(&dims)[3] = pooled.dims;
  for (int64_t d = 0; d < dims[0].out(); ++d)
    for (int64_t h = 0; h < dims[1].out(); ++h)
      for (int64_t w = 0; w < dims[2].out(); ++w) {
        const Window window[3] = {dims[0].window(d), dims[1].window(h), dims[2].window(w)};
        f(d, h, w, window);
      }
}

// f(d, h, w) for every element of a plane of the input; and g(d, h, w) for every output whose
// window may have one.
template <typename F>
void over_inputs(const Pooled& pooled, F&& f) {
  const PooledDim(&dims)[3] = pooled.dims;
  for (int64_t d = 0; d < dims[0].in(); ++d)
    for (int64_t h = 0; h < dims[1].in(); ++h)
      for (int64_t w = 0; w < dims[2].in(); ++w) f(d, h, w);
}
template <typename G>
void over_covering(const Pooled& pooled, int64_t d, int64_t h, int64_t w, G&& g) {
  const auto ds = pooled.dims[0].covering(d), hs = pooled.dims[1].covering(h),
             ws = pooled.dims[2].covering(w);
  for (int64_t od = ds.begin; od < ds.end; ++od)
    for (int64_t oh = hs.begin; oh < hs.end; ++oh)
      for (int64_t ow = ws.begin; ow < ws.end; ++ow) g(od, oh, ow);
}

// The position of an element in its plane, as 'indices' count.
int64_t index_of(const Pooled& pooled, int64_t d, int64_t h, int64_t w) {
  return (d * pooled.dims[1].in() + h) * pooled.dims[2].in() + w;
}

struct Pooling {
  Pooled pooled;
  Planes in, out, indices;         // of a gradient: in is what is made
  std::optional<int64_t> divisor;  // for every window

  template <typename F>
  void for_each_plane(F&& f) const {
    for (int64_t sample = 0; sample < in.batch; ++sample)
      for (int64_t channel = 0; channel < in.channels; ++channel) f(sample, channel);
  }
  template <typename T>
  T divisor_of(int64_t d, int64_t h, int64_t w) const {
    if (divisor) return static_cast<T>(*divisor);
    return static_cast<T>(pooled.dims[0].window(d).count) *
           static_cast<T>(pooled.dims[1].window(h).count) *
           static_cast<T>(pooled.dims[2].window(w).count);
  }
};

template <typename E>
class MaxPool final : public Kernel {
 public:
  explicit MaxPool(Pooling pooling) : p_(std::move(pooling)) {}

  base::Status launch(device::Stream& stream) override {
    using T = LaneOf<E>;
    const E* in = p_.in.on<E>(stream);
    E* out = p_.out.on<E>(stream);
    auto* indices = p_.indices.data == nullptr ? nullptr : p_.indices.on<int64_t>(stream);
    const int64_t step = p_.pooled.dims[2].step(), stride = p_.in.strides[4];
    p_.for_each_plane([&](int64_t sample, int64_t channel) {
      const E* from = in + p_.in.plane(sample, channel);
      E* to = out + p_.out.plane(sample, channel);
      over_outputs(p_.pooled, [&](int64_t d, int64_t h, int64_t w, const Window(&window)[3]) {
        T largest = -std::numeric_limits<T>::infinity();
        int64_t place = index_of(p_.pooled, window[0].begin, window[1].begin, window[2].begin);
        over_rows(p_.pooled, window, [&](int64_t id, int64_t ih) {
          const E* row = from + p_.in.at(id, ih, 0);
          const int64_t begin = index_of(p_.pooled, id, ih, 0);
          for (int64_t iw = window[2].begin; iw < window[2].end; iw += step) {
            const T x = native::load(row[iw * stride]);
            // The last NaN, or the first of equals; chosen without a branch, which would be
            // guessed wrong every other time.
            const bool is_larger = (x > largest) | (x != x);
            largest = is_larger ? x : largest;
            place = is_larger ? begin + iw : place;
          }
        });
        to[p_.out.at(d, h, w)] = store<E>(largest);
        if (indices != nullptr)
          indices[p_.indices.plane(sample, channel) + p_.indices.at(d, h, w)] = place;
      });
    });
    return {};
  }

 private:
  Pooling p_;
};

template <typename E>
class MaxPoolBackward final : public Kernel {
 public:
  explicit MaxPoolBackward(Pooling pooling) : p_(std::move(pooling)) {}

  base::Status launch(device::Stream& stream) override {
    E* in = p_.in.on<E>(stream);
    const E* out = p_.out.on<E>(stream);
    const auto* indices = p_.indices.on<int64_t>(stream);
    const bool scatters = sizeof(E) >= 4 || !p_.pooled.windows_overlap();
    p_.for_each_plane([&](int64_t sample, int64_t channel) {
      E* to = in + p_.in.plane(sample, channel);
      const E* from = out + p_.out.plane(sample, channel);
      const int64_t* places = indices + p_.indices.plane(sample, channel);
      scatters ? scatter(to, from, places) : gather(to, from, places);
    });
    return {};
  }

 private:
  using T = LaneOf<E>;

  // Each element adds, in the order of outputs, what the windows that may have it give.
  void gather(E* to, const E* from, const int64_t* places) const {
    over_inputs(p_.pooled, [&](int64_t d, int64_t h, int64_t w) {
      const int64_t here = index_of(p_.pooled, d, h, w);
      T sum{};
      over_covering(p_.pooled, d, h, w, [&](int64_t od, int64_t oh, int64_t ow) {
        if (places[p_.indices.at(od, oh, ow)] == here)
          sum += native::load(from[p_.out.at(od, oh, ow)]);
      });
      to[p_.in.at(d, h, w)] = store<E>(sum);
    });
  }

  // Each output adds to the element that it names: the same sums in the same order. Not where
  // several would be rounded to 16 bits in between.
  void scatter(E* to, const E* from, const int64_t* places) const {
    const PooledDim(&dims)[3] = p_.pooled.dims;
    over_inputs(p_.pooled, [&](int64_t d, int64_t h, int64_t w) { to[p_.in.at(d, h, w)] = E{}; });
    const int64_t count = p_.pooled.in(), width = dims[2].in(), height = dims[1].in();
    const bool is_dense = p_.in.strides[4] == 1 && p_.in.strides[3] == width &&
                          (dims[0].in() == 1 || p_.in.strides[2] == width * height);
    over_outputs(p_.pooled, [&](int64_t d, int64_t h, int64_t w, const Window(&)[3]) {
      const int64_t place = places[p_.indices.at(d, h, w)];
      if (place < 0 || place >= count) return;
      const int64_t at =
          is_dense ? place
                   : p_.in.at(place / width / height, place / width % height, place % width);
      to[at] = store<E>(native::load(to[at]) + native::load(from[p_.out.at(d, h, w)]));
    });
  }

  Pooling p_;
};

template <typename E>
class AveragePool final : public Kernel {
 public:
  explicit AveragePool(Pooling pooling) : p_(std::move(pooling)) {}

  base::Status launch(device::Stream& stream) override {
    using T = LaneOf<E>;
    const E* in = p_.in.on<E>(stream);
    E* out = p_.out.on<E>(stream);
    const int64_t step = p_.pooled.dims[2].step(), stride = p_.in.strides[4];
    p_.for_each_plane([&](int64_t sample, int64_t channel) {
      const E* from = in + p_.in.plane(sample, channel);
      E* to = out + p_.out.plane(sample, channel);
      over_outputs(p_.pooled, [&](int64_t d, int64_t h, int64_t w, const Window(&window)[3]) {
        T sum{};
        over_rows(p_.pooled, window, [&](int64_t id, int64_t ih) {
          const E* row = from + p_.in.at(id, ih, 0);
          for (int64_t iw = window[2].begin; iw < window[2].end; iw += step)
            sum += native::load(row[iw * stride]);
        });
        to[p_.out.at(d, h, w)] = store<E>(sum / p_.divisor_of<T>(d, h, w));
      });
    });
    return {};
  }

 private:
  Pooling p_;
};

template <typename E>
class AveragePoolBackward final : public Kernel {
 public:
  explicit AveragePoolBackward(Pooling pooling) : p_(std::move(pooling)) {}

  base::Status launch(device::Stream& stream) override {
    using T = LaneOf<E>;
    E* in = p_.in.on<E>(stream);
    const E* out = p_.out.on<E>(stream);
    p_.for_each_plane([&](int64_t sample, int64_t channel) {
      E* to = in + p_.in.plane(sample, channel);
      const E* from = out + p_.out.plane(sample, channel);
      over_inputs(p_.pooled, [&](int64_t d, int64_t h, int64_t w) {
        T sum{};
        over_covering(p_.pooled, d, h, w, [&](int64_t od, int64_t oh, int64_t ow) {
          sum += native::load(from[p_.out.at(od, oh, ow)]) / p_.divisor_of<T>(od, oh, ow);
        });
        to[p_.in.at(d, h, w)] = store<E>(sum);
      });
    });
    return {};
  }

 private:
  Pooling p_;
};

template <template <typename> class K>
Made with_elements(Call& call, base::DType dtype, Pooling pooling) {
  switch (dtype) {
    case base::DType::F32:
      return call.finish<K<float>>(std::move(pooling));
    case base::DType::F64:
      return call.finish<K<double>>(std::move(pooling));
    case base::DType::BF16:
      return call.finish<K<BF16>>(std::move(pooling));
    case base::DType::F16:
      return call.finish<K<F16>>(std::move(pooling));
    default:
      call.require(false, "pooling takes floating-point numbers");
      return call.made(nullptr);
  }
}

using MakeWindows = std::optional<Pooled> (*)(Call&, const BoundTensor&, const BoundTensor&,
                                              size_t);

// `in` and `out`: tensors of the input's and the output's shape.
std::optional<Pooling> make_pooling(Call& call, const BoundTensor& in, const BoundTensor& out,
                                    size_t dims, MakeWindows windows) {
  auto pooled = windows(call, in, out, dims);
  call.require(in.dtype == out.dtype, "the element types differ");
  if (!pooled || !call.ok()) return std::nullopt;
  return Pooling{*std::move(pooled), Planes(in, dims), Planes(out, dims), {}, std::nullopt};
}

void add_indices(Call& call, Pooling& pooling, const BoundTensor& indices, const BoundTensor& out,
                 size_t dims) {
  call.require(indices.dtype == base::DType::I64, "'indices' must be of i64");
  call.same_sizes(indices, out);
  if (call.ok()) pooling.indices = Planes(indices, dims);
}

template <size_t kDims, auto kWindows>
Made max_pool(Call& call) {
  const BoundTensor in = call.tensor("self"), out = call.output(0);
  auto pooling = make_pooling(call, in, out, kDims, kWindows);
  if (!pooling) return call.made(nullptr);
  call.require(!pooling->pooled.has_empty_window(), "a window lies in the padding");
  if (call.has_result(1)) add_indices(call, *pooling, call.output(1), out, kDims);
  return with_elements<MaxPool>(call, in.dtype, *std::move(pooling));
}

template <size_t kDims, auto kWindows>
Made max_pool_backward(Call& call) {
  const BoundTensor in = call.output(0), out = call.tensor("grad_output");
  const BoundTensor self = call.tensor("self"), indices = call.tensor("indices");
  call.same_sizes(self, in);
  auto pooling = make_pooling(call, in, out, kDims, kWindows);
  if (!pooling) return call.made(nullptr);
  add_indices(call, *pooling, indices, out, kDims);
  return with_elements<MaxPoolBackward>(call, in.dtype, *std::move(pooling));
}

void read_divisor(Call& call, Pooling& pooling) {
  if (!call.has_value("divisor_override")) return;
  pooling.divisor = call.integer("divisor_override");
  call.require(*pooling.divisor != 0, "'divisor_override' is zero");
}

template <size_t kDims, auto kWindows>
Made average_pool(Call& call) {
  const BoundTensor in = call.tensor("self"), out = call.output(0);
  auto pooling = make_pooling(call, in, out, kDims, kWindows);
  if (!pooling) return call.made(nullptr);
  read_divisor(call, *pooling);
  return with_elements<AveragePool>(call, in.dtype, *std::move(pooling));
}

template <size_t kDims, auto kWindows>
Made average_pool_backward(Call& call) {
  const BoundTensor in = call.output(0), out = call.tensor("grad_output");
  call.same_sizes(call.tensor("self"), in);
  auto pooling = make_pooling(call, in, out, kDims, kWindows);
  if (!pooling) return call.made(nullptr);
  read_divisor(call, *pooling);
  return with_elements<AveragePoolBackward>(call, in.dtype, *std::move(pooling));
}

constexpr native::Row kPoolings[] = {
    {"aten._adaptive_avg_pool2d.default", average_pool<2, adaptive_windows>},
    {"aten._adaptive_avg_pool2d_backward.default", average_pool_backward<2, adaptive_windows>},
    {"aten.adaptive_max_pool2d.default", max_pool<2, adaptive_windows>},
    {"aten.adaptive_max_pool2d_backward.default", max_pool_backward<2, adaptive_windows>},
    {"aten.avg_pool2d.default", average_pool<2, sliding_windows>},
    {"aten.avg_pool2d_backward.default", average_pool_backward<2, sliding_windows>},
    {"aten.avg_pool3d.default", average_pool<3, sliding_windows>},
    {"aten.avg_pool3d_backward.default", average_pool_backward<3, sliding_windows>},
    {"aten.max_pool2d_with_indices.default", max_pool<2, sliding_windows>},
    {"aten.max_pool2d_with_indices_backward.default", max_pool_backward<2, sliding_windows>},
    {"aten.max_pool3d_with_indices.default", max_pool<3, sliding_windows>},
    {"aten.max_pool3d_with_indices_backward.default", max_pool_backward<3, sliding_windows>},
};

}  // namespace

std::span<const Row> pooling_kernels() { return kPoolings; }

}  // namespace dc::runtime::kernel::native
