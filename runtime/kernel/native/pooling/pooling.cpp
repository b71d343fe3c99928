// Largest elements and averages of windows over the last two or three dims, and their gradients.
//
// A window's elements are taken in row-major order; the largest is the first of equals, or the last
// NaN. Each element of an input's gradient is the sum, in the order of outputs, of what the windows
// that have it give, 16-bit ones summed in f32. An index outside of its plane gives nothing.
#include "runtime/kernel/native/pooling/pooling.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "runtime/kernel/native/fill.h"
#include "runtime/kernel/native/lanes.h"
#include "runtime/kernel/native/operator_rows.h"
#include "runtime/kernel/native/pooling/pooling_call.h"
#include "runtime/kernel/native/vector_clones.h"

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
  // Whether the elements of a plane of this shape lie one behind the other.
  bool are_dense(int64_t depth, int64_t height, int64_t width) const {
    return (width == 1 || strides[4] == 1) && (height == 1 || strides[3] == width) &&
           (depth == 1 || strides[2] == width * height);
  }
};

template <typename E>
using LaneOf = decltype(native::load(E{}));
template <typename E>
constexpr base::DType kDTypeOf = std::is_same_v<E, float>    ? base::DType::F32
                                 : std::is_same_v<E, double> ? base::DType::F64
                                 : std::is_same_v<E, BF16>   ? base::DType::BF16
                                                             : base::DType::F16;

// f(d, h) for every row of the window.
template <typename F>
void over_rows(const Pooled& pooled, const Window (&window)[3], F&& f) {
  for (int64_t d = window[0].begin; d < window[0].end; d += pooled.dims[0].step())
    for (int64_t h = window[1].begin; h < window[1].end; h += pooled.dims[1].step()) f(d, h);
}

// f(d, h, w, window) for every output of a plane.
template <typename F>
void over_outputs(const Pooled& pooled, F&& f) {
  const std::array<PooledDim, 3>& dims = pooled.dims;
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
  const std::array<PooledDim, 3>& dims = pooled.dims;
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

// The largest element so far of each column of a window's rows, and where its row begins.
template <typename T>
struct LargestOfColumns {
  using Place = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;
  alignas(64) T values[kBlock];
  alignas(64) Place begins[kBlock];
};
// The rows of a window come in their order.
template <typename E, typename T, typename Place>
DC_VECTOR_CLONES void take_larger(T* __restrict values, Place* __restrict begins, const E* row,
                                  Place begin, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const T x = native::load(row[i]);
    const bool is_larger = (x > values[i]) | (x != x);
    values[i] = is_larger ? x : values[i];
    begins[i] = is_larger ? begin : begins[i];
  }
}

template <typename E>
class MaxPool final : public Kernel {
 public:
  explicit MaxPool(Pooling pooling) : p_(std::move(pooling)) {}

  base::Status launch(device::Stream& stream) override {
    const E* in = p_.in.on<E>(stream);
    E* out = p_.out.on<E>(stream);
    auto* indices = p_.indices.data == nullptr ? nullptr : p_.indices.on<int64_t>(stream);
    const int64_t width = p_.pooled.dims[2].in();
    const bool by_columns = p_.in.strides[4] == 1 && width <= kBlock &&
                            p_.pooled.in() <= std::numeric_limits<int32_t>::max();
    p_.for_each_plane([&](int64_t sample, int64_t channel) {
      const E* from = in + p_.in.plane(sample, channel);
      E* to = out + p_.out.plane(sample, channel);
      auto* places = indices == nullptr ? nullptr : indices + p_.indices.plane(sample, channel);
      by_columns ? pool_by_columns(from, to, places) : pool(from, to, places);
    });
    return {};
  }

 private:
  using T = LaneOf<E>;
  using Columns = LargestOfColumns<T>;

  void put(E* to, int64_t* places, int64_t d, int64_t h, int64_t w, T largest,
           int64_t place) const {
    to[p_.out.at(d, h, w)] = store<E>(largest);
    if (places != nullptr) places[p_.indices.at(d, h, w)] = place;
  }

  void pool(const E* from, E* to, int64_t* places) const {
    const int64_t step = p_.pooled.dims[2].step(), stride = p_.in.strides[4];
    over_outputs(p_.pooled, [&](int64_t d, int64_t h, int64_t w, const Window(&window)[3]) {
      T largest = -std::numeric_limits<T>::infinity();
      int64_t place = index_of(p_.pooled, window[0].begin, window[1].begin, window[2].begin);
      over_rows(p_.pooled, window, [&](int64_t id, int64_t ih) {
        const E* row = from + p_.in.at(id, ih, 0);
        const int64_t begin = index_of(p_.pooled, id, ih, 0);
        for (int64_t iw = window[2].begin; iw < window[2].end; iw += step) {
          const T x = native::load(row[iw * stride]);
          // Chosen without a branch, which would be guessed wrong every other time.
          const bool is_larger = (x > largest) | (x != x);
          largest = is_larger ? x : largest;
          place = is_larger ? begin + iw : place;
        }
      });
      put(to, places, d, h, w, largest, place);
    });
  }

  // The rows of an output's windows column by column, as vectors; then the columns of each window.
  void pool_by_columns(const E* from, E* to, int64_t* places) const {
    using Place = typename Columns::Place;
    const std::array<PooledDim, 3>& dims = p_.pooled.dims;
    const int64_t width = dims[2].in();
    Columns columns;
    for (int64_t d = 0; d < dims[0].out(); ++d) {
      for (int64_t h = 0; h < dims[1].out(); ++h) {
        const Window window[3] = {dims[0].window(d), dims[1].window(h), {}};
        const int64_t first = index_of(p_.pooled, window[0].begin, window[1].begin, 0);
        std::fill_n(columns.values, width, -std::numeric_limits<T>::infinity());
        std::fill_n(columns.begins, width, static_cast<Place>(first));
        over_rows(p_.pooled, window, [&](int64_t id, int64_t ih) {
          take_larger(columns.values, columns.begins, from + p_.in.at(id, ih, 0),
                      static_cast<Place>(index_of(p_.pooled, id, ih, 0)), width);
        });
        for (int64_t w = 0; w < dims[2].out(); ++w) put_largest(columns, to, places, d, h, w);
      }
    }
  }
  // Of equals the first in the order of rows, of NaNs the last.
  void put_largest(const Columns& columns, E* to, int64_t* places, int64_t d, int64_t h,
                   int64_t w) const {
    const Window& window = p_.pooled.dims[2].window(w);
    const int64_t step = p_.pooled.dims[2].step();
    T largest = columns.values[window.begin];
    int64_t place = columns.begins[window.begin] + window.begin;
    for (int64_t iw = window.begin + step; iw < window.end; iw += step) {
      const T x = columns.values[iw];
      const int64_t here = columns.begins[iw] + iw;
      const bool is_larger = (x > largest) | ((x == largest) & (here < place)) |
                             ((x != x) & ((largest == largest) | (here > place)));
      largest = is_larger ? x : largest;
      place = is_larger ? here : place;
    }
    put(to, places, d, h, w, largest, place);
  }

  Pooling p_;
};

template <typename E>
class MaxPoolBackward final : public Kernel {
 public:
  // `sums`: a plane of f32 on the device, where several windows may add to one element of 16 bits.
  MaxPoolBackward(Pooling pooling, std::byte* sums) : p_(std::move(pooling)), sums_(sums) {}

  base::Status launch(device::Stream& stream) override {
    E* in = p_.in.on<E>(stream);
    const E* out = p_.out.on<E>(stream);
    const auto* indices = p_.indices.on<int64_t>(stream);
    auto* sums = sums_ == nullptr ? nullptr : reinterpret_cast<T*>(stream.resolve(sums_));
    p_.for_each_plane([&](int64_t sample, int64_t channel) {
      E* to = in + p_.in.plane(sample, channel);
      const E* from = out + p_.out.plane(sample, channel);
      const int64_t* places = indices + p_.indices.plane(sample, channel);
      sums == nullptr ? scatter(to, from, places) : sum(to, from, places, sums);
    });
    return {};
  }

 private:
  using T = LaneOf<E>;

  // Where the element with this index lies, if the plane's elements have gaps.
  int64_t offset_of(int64_t place) const {
    const int64_t width = p_.pooled.dims[2].in(), height = p_.pooled.dims[1].in();
    return p_.in.at(place / width / height, place / width % height, place % width);
  }

  // add(index, output) for each output whose index is in the plane, in the order of outputs.
  template <typename Add>
  void over_places(const E* from, const int64_t* places, Add&& add) const {
    const std::array<PooledDim, 3>& dims = p_.pooled.dims;
    const auto count = static_cast<uint64_t>(p_.pooled.in());
    const auto over_row = [&](const int64_t* row, int64_t step, const E* gradients,
                              int64_t gradient_step, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        const int64_t place = row[i * step];
        if (static_cast<uint64_t>(place) < count)
          add(place, native::load(gradients[i * gradient_step]));
      }
    };
    const int64_t depth = dims[0].out(), height = dims[1].out(), width = dims[2].out();
    if (p_.indices.are_dense(depth, height, width) && p_.out.are_dense(depth, height, width))
      return over_row(places, 1, from, 1, p_.pooled.out());
    for (int64_t d = 0; d < depth; ++d)
      for (int64_t h = 0; h < height; ++h)
        over_row(places + p_.indices.at(d, h, 0), p_.indices.strides[4], from + p_.out.at(d, h, 0),
                 p_.out.strides[4], width);
  }

  void scatter(E* to, const E* from, const int64_t* places) const {
    const std::array<PooledDim, 3>& dims = p_.pooled.dims;
    const auto add = [](E& element, T gradient) {
      element = store<E>(native::load(element) + gradient);
    };
    if (p_.in.are_dense(dims[0].in(), dims[1].in(), dims[2].in())) {
      fill_dense(to, E{}, p_.pooled.in());
      over_places(from, places, [&](int64_t place, T gradient) { add(to[place], gradient); });
      return;
    }
    over_inputs(p_.pooled, [&](int64_t d, int64_t h, int64_t w) { to[p_.in.at(d, h, w)] = E{}; });
    over_places(from, places,
                [&](int64_t place, T gradient) { add(to[offset_of(place)], gradient); });
  }

  // The same sums in f32, rounded once.
  void sum(E* to, const E* from, const int64_t* places, T* sums) const {
    const std::array<PooledDim, 3>& dims = p_.pooled.dims;
    fill_dense(sums, T{}, p_.pooled.in());
    over_places(from, places, [&](int64_t place, T gradient) { sums[place] += gradient; });
    for (int64_t d = 0; d < dims[0].in(); ++d)
      for (int64_t h = 0; h < dims[1].in(); ++h)
        store_row_(to + p_.in.at(d, h, 0), p_.in.strides[4], sums + index_of(p_.pooled, d, h, 0),
                   dims[2].in());
  }

  Pooling p_;
  std::byte* sums_;
  StoreLanes store_row_ = storer(kLaneOf<T>, kDTypeOf<E>);
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

template <template <typename> class K, typename... More>
Made with_elements(Call& call, base::DType dtype, Pooling pooling, More... more) {
  if (dtype == base::DType::F64) return call.finish<K<double>>(std::move(pooling), more...);
  if (dtype == base::DType::BF16) return call.finish<K<BF16>>(std::move(pooling), more...);
  if (dtype == base::DType::F16) return call.finish<K<F16>>(std::move(pooling), more...);
  return call.finish<K<float>>(std::move(pooling), more...);
}

Made make_pooling(Call& call) {
  auto read = read_pooling(call);
  if (!read) return call.made(nullptr);
  const base::DType dtype = read->in.dtype;
  Pooling pooling{std::move(read->windows), Planes(read->in, read->dims),
                  Planes(read->out, read->dims), Planes(), read->divisor};
  if (read->indices) pooling.indices = Planes(*read->indices, read->dims);
  switch (read->kind) {
    case PoolingKind::Largest:
      return with_elements<MaxPool>(call, dtype, std::move(pooling));
    case PoolingKind::LargestGradient: {
      const bool needs_sums = base::byte_size(dtype) == 2 && pooling.pooled.windows_overlap();
      const int64_t bytes = pooling.pooled.in() * static_cast<int64_t>(sizeof(float));
      std::byte* sums = needs_sums ? call.scratch(bytes) : nullptr;
      return with_elements<MaxPoolBackward>(call, dtype, std::move(pooling), sums);
    }
    case PoolingKind::Average:
      return with_elements<AveragePool>(call, dtype, std::move(pooling));
    case PoolingKind::AverageGradient:
      return with_elements<AveragePoolBackward>(call, dtype, std::move(pooling));
  }
  return call.made(nullptr);
}

constexpr auto kPoolings = operator_rows<native::Row>(kPoolingOperators, make_pooling);

}  // namespace

std::span<const Row> pooling_kernels() { return kPoolings; }

}  // namespace dc::runtime::kernel::native
