// Batch norm of channels that lie next to each other: blocks of them, position by position.
//
// Sums are of one channel each, of 64 positions in T, and these in f64.
#include "runtime/kernel/native/norms/batch_norm_tensors.h"
#include "runtime/kernel/native/vector_clones.h"

namespace dc::runtime::kernel::native {
namespace {

constexpr int64_t kPositionsInLanes = 64;

template <typename T>
DC_VECTOR_CLONES void add_each(T* __restrict sums, const T* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sums[i] += x[i];
}
template <typename T>
DC_VECTOR_CLONES void add_squares(T* __restrict sums, const T* x, const T* means, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sums[i] += (x[i] - means[i]) * (x[i] - means[i]);
}
template <typename T>
DC_VECTOR_CLONES void add_gradients(T* __restrict sums, T* __restrict products, const T* g,
                                    const T* x, const T* means, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    sums[i] += g[i];
    products[i] += g[i] * (x[i] - means[i]);
  }
}
template <typename T>
DC_VECTOR_CLONES void normalize(T* __restrict out, const T* x, const T* means, const T* scales,
                                const T* shifts, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = (x[i] - means[i]) * scales[i] + shifts[i];
}
template <typename T>
DC_VECTOR_CLONES void gradient(T* __restrict out, const T* g, const T* x, const T* means,
                               const T* means_of_g, const T* slopes, const T* scales, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    out[i] = (g[i] - means_of_g[i] - (x[i] - means[i]) * slopes[i]) * scales[i];
}

// One number for each channel of a block.
template <typename T>
using Numbers = T[kBlock];

// Sums of a block's channels.
template <typename T>
class Sums {
 public:
  explicit Sums(int64_t n) : n_(n) {
    std::fill_n(lanes_, n, T{});
    std::fill_n(totals_, n, 0.0);
  }
  T* lanes() { return lanes_; }
  void empty() {
    for (int64_t i = 0; i < n_; ++i) totals_[i] += static_cast<double>(lanes_[i]);
    std::fill_n(lanes_, n_, T{});
  }
  double operator[](int64_t channel) const { return totals_[channel]; }

 private:
  int64_t n_;
  alignas(64) Numbers<T> lanes_;
  Numbers<double> totals_;
};

template <typename T>
class Neighbours : public Kernel {
 protected:
  explicit Neighbours(const BatchNormTensors<T>& t) : t_(t) {}

  // of(first, n) for blocks of channels.
  template <typename Of>
  void in_channels(Of&& of) const {
    for (int64_t first = 0; first < t_.channels.count(); first += kBlock)
      of(first, std::min(kBlock, t_.channels.count() - first));
  }
  // add(offsets) for each position, with empty() in time.
  template <typename Add, typename Empty>
  void sum(Add&& add, Empty&& empty) const {
    int64_t added = 0;
    t_.channels.for_each_element([&](const Offsets& at) {
      add(at);
      if (++added % kPositionsInLanes == 0) empty();
    });
    empty();
  }
  static const T* read(const RowTensor<T>& tensor, const std::byte* base, int64_t offset, int64_t n,
                       T* buffer) {
    return tensor.read(buffer, base + offset * tensor.reader().element, 0, n);
  }

  BatchNormTensors<T> t_;
};

template <typename T>
class BatchNormOfNeighbours final : public Neighbours<T> {
  using Neighbours<T>::t_;

 public:
  explicit BatchNormOfNeighbours(const BatchNormTensors<T>& t) : Neighbours<T>(t) {}

  base::Status launch(device::Stream& stream) override {
    std::byte *x = t_.x.on(stream), *y = t_.y.on(stream);
    this->in_channels([&](int64_t first, int64_t n) {
      alignas(64) Numbers<T> means, scales, shifts;
      statistics(stream, x, first, n, means, scales);
      t_.bias.read(stream, first, n, shifts);
      t_.channels.for_each_element([&](const Offsets& at) {
        alignas(64) Numbers<T> in, out;
        const T* from = this->read(t_.x, x, at[0] + first, n, in);
        std::byte* row = t_.y.row(y, at[1] + first);
        normalize(t_.y.target(out, row, 0), from, means, scales, shifts, n);
        t_.y.write(out, row, 0, n);
      });
    });
    return {};
  }

 private:
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
    alignas(64) Numbers<T> in;
    Sums<T> sums(n), squares(n);
    this->sum(
        [&](const Offsets& at) {
          add_each(sums.lanes(), this->read(t_.x, x, at[0] + first, n, in), n);
        },
        [&] { sums.empty(); });
    for (int64_t i = 0; i < n; ++i) means[i] = static_cast<T>(sums[i] / count);
    this->sum(
        [&](const Offsets& at) {
          add_squares(squares.lanes(), this->read(t_.x, x, at[0] + first, n, in), means, n);
        },
        [&] { squares.empty(); });
    for (int64_t i = 0; i < n; ++i) variances[i] = squares[i] / count;
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

 public:
  explicit BatchNormBackwardOfNeighbours(const BatchNormTensors<T>& t) : Neighbours<T>(t) {}

  base::Status launch(device::Stream& stream) override {
    std::byte *x = t_.x.on(stream), *g = t_.g.on(stream), *y = t_.y.on(stream);
    this->in_channels([&](int64_t first, int64_t n) {
      alignas(64) Numbers<T> means, means_of_g, slopes, scales;
      factors(stream, x, g, first, n, means, means_of_g, slopes, scales);
      if (!t_.y.given()) return;
      t_.channels.for_each_element([&](const Offsets& at) {
        alignas(64) Numbers<T> in, gradients, out;
        const T* from = this->read(t_.x, x, at[0] + first, n, in);
        const T* grad = this->read(t_.g, g, at[1] + first, n, gradients);
        std::byte* row = t_.y.row(y, at[2] + first);
        gradient(t_.y.target(out, row, 0), grad, from, means, means_of_g, slopes, scales, n);
        t_.y.write(out, row, 0, n);
      });
    });
    return {};
  }

 private:
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
    Sums<T> sums(n), products(n);
    alignas(64) Numbers<T> in, gradients;
    this->sum(
        [&](const Offsets& at) {
          add_gradients(sums.lanes(), products.lanes(),
                        this->read(t_.g, g, at[1] + first, n, gradients),
                        this->read(t_.x, x, at[0] + first, n, in), means, n);
        },
        [&] { sums.empty(), products.empty(); });
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
