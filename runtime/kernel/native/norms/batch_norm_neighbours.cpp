// Batch norm of channels that lie next to each other, each with one element or a small plane:
// blocks of channels, a few positions at a time. A lane is an element of such a block.
//
// Sums are of one lane each, in f64, those of gradients of four positions at a time, then of a
// channel's lanes in the order of fold.h. Mean and variance are of distances from the channel's
// first element, in one pass: a distance from the mean is at most the root of the number of
// elements times the deviation, so that with n elements what cancels costs n roundings of f64
// (T. Chan, G. Golub and R. LeVeque, "Algorithms for computing the sample variance", 1983).
#include "runtime/kernel/native/norms/batch_norm_tensors.h"
#include "runtime/kernel/native/reductions/fold.h"
#include "runtime/kernel/native/vector_clones.h"

namespace dc::runtime::kernel::native {
namespace {

constexpr int64_t kTogether = 4;  // positions

// Adds, per lane, the distances of x from `origins`, and their squares.
template <int64_t kPositions, typename T>
[[gnu::always_inline]] inline void add_positions(double* __restrict sums,
                                                 double* __restrict squares, const T* x,
                                                 int64_t step, const double* origins, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    double sum = sums[i], square = squares[i];
    for (int64_t k = 0; k < kPositions; ++k) {
      const double distance = static_cast<double>(x[k * step + i]) - origins[i];
      sum += distance;
      square += distance * distance;
    }
    sums[i] = sum;
    squares[i] = square;
  }
}
template <typename T>
DC_VECTOR_CLONES void add_statistics(double* sums, double* squares, const T* x, int64_t step,
                                     int64_t positions, const double* origins, int64_t n) {
  if (positions == kTogether) return add_positions<kTogether>(sums, squares, x, step, origins, n);
  for (int64_t k = 0; k < positions; ++k)
    add_positions<1>(sums, squares, x + k * step, step, origins, n);
}

// Adds, per lane, g, and its products with the distances of x from `means`; those of a few
// positions are summed in T.
template <int64_t kPositions, typename T>
[[gnu::always_inline]] inline void add_products(double* __restrict sums,
                                                double* __restrict products, const T* g,
                                                int64_t g_step, const T* x, int64_t x_step,
                                                const T* means, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    T sum{}, product{};
    for (int64_t k = 0; k < kPositions; ++k) {
      const T gradient = g[k * g_step + i];
      sum += gradient;
      product += gradient * (x[k * x_step + i] - means[i]);
    }
    sums[i] += static_cast<double>(sum);
    products[i] += static_cast<double>(product);
  }
}
template <typename T>
DC_VECTOR_CLONES void add_gradients(double* sums, double* products, const T* g, int64_t g_step,
                                    const T* x, int64_t x_step, int64_t positions, const T* means,
                                    int64_t n) {
  if (positions == kTogether)
    return add_products<kTogether>(sums, products, g, g_step, x, x_step, means, n);
  for (int64_t k = 0; k < positions; ++k)
    add_products<1>(sums, products, g + k * g_step, g_step, x + k * x_step, x_step, means, n);
}
template <typename T>
DC_VECTOR_CLONES void normalize(T* __restrict out, const T* x, const T* means, const T* scales,
                                const T* shifts, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = (x[i] - means[i]) * scales[i] + shifts[i];
}
// What the gradient of x is made of, per lane.
template <typename T>
struct GradientFactors {
  const T *means, *means_of_g, *slopes, *scales;
};
template <int64_t kPositions, typename T>
[[gnu::always_inline]] inline void gradients_of(T* __restrict out, int64_t out_step, const T* g,
                                                int64_t g_step, const T* x, int64_t x_step,
                                                const GradientFactors<T>& factors, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const T mean = factors.means[i], mean_of_g = factors.means_of_g[i], slope = factors.slopes[i],
            scale = factors.scales[i];
#pragma GCC unroll 4
    for (int64_t k = 0; k < kPositions; ++k) {
      const T distance = x[k * x_step + i] - mean;
      out[k * out_step + i] = (g[k * g_step + i] - mean_of_g - distance * slope) * scale;
    }
  }
}
template <typename T>
DC_VECTOR_CLONES void gradients_of_x(T* out, int64_t out_step, const T* g, int64_t g_step,
                                     const T* x, int64_t x_step, int64_t positions,
                                     const GradientFactors<T>& factors, int64_t n) {
  if (positions == kTogether)
    return gradients_of<kTogether>(out, out_step, g, g_step, x, x_step, factors, n);
  for (int64_t k = 0; k < positions; ++k)
    gradients_of<1>(out + k * out_step, out_step, g + k * g_step, g_step, x + k * x_step, x_step,
                    factors, n);
}

// n numbers become `times` of each, in place.
template <typename T>
DC_VECTOR_CLONES void repeat_each(T* numbers, int64_t n, int64_t times) {
  for (int64_t i = n; i-- > 0;) {
    const T number = numbers[i];
    for (int64_t k = 0; k < times; ++k) numbers[i * times + k] = number;
  }
}

// One number for each channel of a block, or each of its lanes.
template <typename T>
using Numbers = T[kBlock];

// A block of channels at a few positions: `step` elements from one to the next.
template <typename T>
struct Positions {
  const T* at(int64_t position) const { return first + position * step; }

  const T* first;
  int64_t step;
};

template <typename T>
class Neighbours : public Kernel {
 public:
  base::Status launch(device::Stream& stream) final {
    const int64_t most = kBlock / width();
    for (int64_t first = 0; first < t_.channels.count(); first += most)
      in_channels(stream, first, std::min(most, t_.channels.count() - first));
    return {};
  }

 protected:
  using Buffer = T[kTogether][kBlock];
  explicit Neighbours(const BatchNormTensors<T>& t) : t_(t) {}

  // Of the n channels from `first` on, which are one block.
  virtual void in_channels(device::Stream& stream, int64_t first, int64_t n) const = 0;

  int64_t width() const { return t_.channels.width(); }

  // f(offsets of the first, how many) for all positions.
  template <typename F>
  void in_positions(F&& f) const {
    t_.channels.for_each_run(kTogether, f);
  }
  // The lanes of the channels from `first` on at some positions of a tensor, whose number among
  // the tensors of `channels` is `index`: in the buffer, or where they lie.
  Positions<T> read(const RowTensor<T>& tensor, size_t index, const std::byte* base,
                    const Offsets& at, int64_t positions, int64_t first, int64_t n,
                    Buffer& buffer) const {
    const LaneReader& reader = tensor.reader();
    const std::byte* from = base + (at[index] + first * width()) * reader.element;
    const int64_t step = t_.channels.position_step(index);
    if (reader.direct) return {reinterpret_cast<const T*>(from), step};
    for (int64_t k = 0; k < positions; ++k)
      reader.load(buffer[k], from + k * step * reader.element, reader.stride, n * width());
    return {buffer[0], kBlock};
  }
  // make(where the first position's lanes go, how far it is to the next) for some positions of y,
  // which is tensor `index`.
  template <typename Make>
  void write(size_t index, std::byte* base, const Offsets& at, int64_t positions, int64_t first,
             int64_t n, Make&& make) const {
    const int64_t step = t_.channels.position_step(index);
    std::byte* row = t_.y.row(base, at[index] + first * width());
    if (t_.y.reader().direct) return make(reinterpret_cast<T*>(row), step);
    alignas(64) Buffer out;
    make(out[0], kBlock);
    for (int64_t k = 0; k < positions; ++k)
      t_.y.write(out[k], t_.y.row(row, k * step), 0, n * width());
  }
  // From one number per channel to one per lane, in place, and from sums of lanes to sums of
  // channels.
  template <typename U>
  void spread(U* numbers, int64_t n) const {
    if (width() > 1) repeat_each(numbers, n, width());
  }
  void join(double* sums, int64_t n) const {
    if (width() == 1) return;
    Numbers<double> joined;
    using Sum = SumFold<double>;
    width() <= kFoldLanes / 2 ? fold_few_chunks<Sum, double>(joined, sums, width(), n, width())
                              : fold_long_chunks<Sum, double>(joined, sums, width(), n, width());
    std::copy_n(joined, n, sums);
  }

  BatchNormTensors<T> t_;
};

template <typename T>
class BatchNormOfNeighbours final : public Neighbours<T> {
  using Neighbours<T>::t_;
  using Neighbours<T>::width;
  using typename Neighbours<T>::Buffer;

 public:
  explicit BatchNormOfNeighbours(const BatchNormTensors<T>& t) : Neighbours<T>(t) {}

 private:
  void in_channels(device::Stream& stream, int64_t first, int64_t n) const override {
    std::byte *x = t_.x.on(stream), *y = t_.y.on(stream);
    alignas(64) Numbers<T> means, scales, shifts;
    statistics(stream, x, first, n, means, scales);
    t_.bias.read(stream, first, n, shifts);
    for (T* numbers : {means, scales, shifts}) this->spread(numbers, n);
    this->in_positions([&](const Offsets& at, int64_t positions) {
      alignas(64) Buffer in;
      const Positions<T> from = this->read(t_.x, 0, x, at, positions, first, n, in);
      this->write(1, y, at, positions, first, n, [&](T* out, int64_t step) {
        for (int64_t k = 0; k < positions; ++k)
          normalize(out + k * step, from.at(k), means, scales, shifts, n * width());
      });
    });
  }

  // The means, and by what distances from them are scaled; statistics that are results are written.
  void statistics(device::Stream& stream, const std::byte* x, int64_t first, int64_t n, T* means,
                  T* scales) const {
    Numbers<double> variances;
    Numbers<T> old_means, old_vars, weights;
    t_.running_mean.read(stream, first, n, old_means);
    t_.running_var.read(stream, first, n, old_vars);
    if (t_.trains) {
      own_statistics(x, first, n, means, variances);
      update(stream, first, n, means, variances, old_means, old_vars);
    } else {
      std::copy_n(old_means, n, means);
      std::copy_n(old_vars, n, variances);
      t_.new_mean.write(stream, first, n, old_means);
      t_.new_var.write(stream, first, n, old_vars);
    }
    t_.weight.read(stream, first, n, weights, T{1});
    for (int64_t i = 0; i < n; ++i) scales[i] = reciprocal_deviation<T>(variances[i], t_.eps);
    t_.mean.write(stream, first, n, means);
    t_.rstd.write(stream, first, n, scales);
    for (int64_t i = 0; i < n; ++i) scales[i] *= weights[i];
  }

  void own_statistics(const std::byte* x, int64_t first, int64_t n, T* means,
                      double* variances) const {
    const auto count = static_cast<double>(t_.channels.elements());
    alignas(64) Buffer in;
    alignas(64) Numbers<double> origins, sums, squares;
    const T* start = this->read(t_.x, 0, x, Offsets{}, 1, first, n, in).first;
    for (int64_t i = 0; i < n; ++i) means[i] = start[i * width()];
    std::copy_n(means, n, origins);
    this->spread(origins, n);
    std::fill_n(sums, n * width(), 0.0);
    std::fill_n(squares, n * width(), 0.0);
    this->in_positions([&](const Offsets& at, int64_t positions) {
      const Positions<T> from = this->read(t_.x, 0, x, at, positions, first, n, in);
      add_statistics(sums, squares, from.first, from.step, positions, origins, n * width());
    });
    this->join(sums, n);
    this->join(squares, n);
    for (int64_t i = 0; i < n; ++i) {
      const double distances = squares[i] - sums[i] * sums[i] / count;
      // What should be 0 may come out a little less. NaN stays.
      variances[i] = (distances < 0 ? 0 : distances) / count;
      means[i] = static_cast<T>(static_cast<double>(means[i]) + sums[i] / count);
    }
  }

  // As in PyTorch, the variance in the running statistics is divided by one less.
  void update(device::Stream& stream, int64_t first, int64_t n, const T* means,
              const double* variances, const T* old_means, const T* old_vars) const {
    const auto count = static_cast<double>(t_.channels.elements());
    Numbers<T> new_means, new_vars;
    const auto mixed = [this](T old, double now) {
      return static_cast<T>((1 - t_.momentum) * static_cast<double>(old) + t_.momentum * now);
    };
    for (int64_t i = 0; i < n; ++i) {
      new_means[i] = mixed(old_means[i], static_cast<double>(means[i]));
      new_vars[i] = mixed(old_vars[i], variances[i] * count / (count - 1));
    }
    t_.new_mean.write(stream, first, n, new_means);
    t_.new_var.write(stream, first, n, new_vars);
  }
};

template <typename T>
class BatchNormBackwardOfNeighbours final : public Neighbours<T> {
  using Neighbours<T>::t_;
  using Neighbours<T>::width;
  using typename Neighbours<T>::Buffer;

 public:
  explicit BatchNormBackwardOfNeighbours(const BatchNormTensors<T>& t) : Neighbours<T>(t) {}

 private:
  void in_channels(device::Stream& stream, int64_t first, int64_t n) const override {
    std::byte *x = t_.x.on(stream), *g = t_.g.on(stream), *y = t_.y.on(stream);
    alignas(64) Numbers<T> means, means_of_g, slopes, scales;
    factors(stream, x, g, first, n, means, means_of_g, slopes, scales);
    if (!t_.y.given()) return;
    for (T* numbers : {means, means_of_g, slopes, scales}) this->spread(numbers, n);
    this->in_positions([&](const Offsets& at, int64_t positions) {
      alignas(64) Buffer in, gradients;
      const Positions<T> from = this->read(t_.x, 0, x, at, positions, first, n, in);
      const Positions<T> grad = this->read(t_.g, 1, g, at, positions, first, n, gradients);
      this->write(2, y, at, positions, first, n, [&](T* out, int64_t step) {
        gradients_of_x(out, step, grad.first, grad.step, from.first, from.step, positions,
                       GradientFactors<T>{means, means_of_g, slopes, scales}, n * width());
      });
    });
  }

  // Of the gradient of x; those of weight and bias are written.
  void factors(device::Stream& stream, const std::byte* x, const std::byte* g, int64_t first,
               int64_t n, T* means, T* means_of_g, T* slopes, T* scales) const {
    const auto count = static_cast<double>(t_.channels.elements());
    Numbers<T> rstds, weights, of_weight, of_bias;
    (t_.trains ? t_.mean : t_.running_mean).read(stream, first, n, means);
    (t_.trains ? t_.rstd : t_.running_var).read(stream, first, n, rstds);
    for (int64_t i = 0; i < n && !t_.trains; ++i)
      rstds[i] = reciprocal_deviation<T>(static_cast<double>(rstds[i]), t_.eps);
    t_.weight.read(stream, first, n, weights, T{1});
    alignas(64) Numbers<double> sums, products;
    sum_gradients(x, g, first, n, means, sums, products);
    for (int64_t i = 0; i < n; ++i) {
      const auto rstd = static_cast<double>(rstds[i]);
      of_weight[i] = static_cast<T>(products[i] * rstd);
      of_bias[i] = static_cast<T>(sums[i]);
      scales[i] = rstds[i] * weights[i];
      // In evaluation the statistics do not depend on x.
      means_of_g[i] = t_.trains ? static_cast<T>(sums[i] / count) : T{};
      slopes[i] = t_.trains ? static_cast<T>(products[i] * rstd * rstd / count) : T{};
    }
    t_.weight_gradient.write(stream, first, n, of_weight);
    t_.bias_gradient.write(stream, first, n, of_bias);
  }

  void sum_gradients(const std::byte* x, const std::byte* g, int64_t first, int64_t n,
                     const T* means, double* sums, double* products) const {
    alignas(64) Buffer in, gradients;
    alignas(64) Numbers<T> spread_means;
    std::copy_n(means, n, spread_means);
    this->spread(spread_means, n);
    std::fill_n(sums, n * width(), 0.0);
    std::fill_n(products, n * width(), 0.0);
    this->in_positions([&](const Offsets& at, int64_t positions) {
      const Positions<T> grad = this->read(t_.g, 1, g, at, positions, first, n, gradients);
      const Positions<T> from = this->read(t_.x, 0, x, at, positions, first, n, in);
      add_gradients(sums, products, grad.first, grad.step, from.first, from.step, positions,
                    spread_means, n * width());
    });
    this->join(sums, n);
    this->join(products, n);
  }
};

}  // namespace

std::unique_ptr<Kernel> batch_norm_of_neighbours(const BatchNormTensors<float>& tensors) {
  return std::make_unique<BatchNormOfNeighbours<float>>(tensors);
}
std::unique_ptr<Kernel> batch_norm_of_neighbours(const BatchNormTensors<double>& tensors) {
  return std::make_unique<BatchNormOfNeighbours<double>>(tensors);
}
std::unique_ptr<Kernel> batch_norm_backward_of_neighbours(const BatchNormTensors<float>& tensors) {
  return std::make_unique<BatchNormBackwardOfNeighbours<float>>(tensors);
}
std::unique_ptr<Kernel> batch_norm_backward_of_neighbours(const BatchNormTensors<double>& tensors) {
  return std::make_unique<BatchNormBackwardOfNeighbours<double>>(tensors);
}

}  // namespace dc::runtime::kernel::native
