// cumsum, and which element is the largest or smallest: along one dim, element by element.
#include <algorithm>
#include <array>
#include <vector>

#include "runtime/kernel/native/iteration.h"
#include "runtime/kernel/native/lanes.h"
#include "runtime/kernel/native/reductions/extreme_call.h"
#include "runtime/kernel/native/reductions/reduce.h"
#include "runtime/kernel/native/registry.h"
#include "src/base/shape.h"

namespace dc::runtime::kernel::native {
namespace {

template <typename T>
T element(const LaneReader& reader, const std::byte* row, int64_t index) {
  T value;
  reader.load(&value, row + index * reader.stride * reader.element, 1, 1);
  return value;
}

// Sums in f64 or int64.
template <typename T>
class CumulativeSum final : public Kernel {
  using Total = std::conditional_t<std::is_integral_v<T>, int64_t, double>;

 public:
  CumulativeSum(const BoundTensor& self, const BoundTensor& to, size_t dim)
      : self_(static_cast<std::byte*>(self.data)),
        to_(static_cast<std::byte*>(to.data)),
        to_element_(base::byte_size(to.dtype)),
        count_(self.sizes.empty() ? 1 : self.sizes[dim]),
        to_stride_(to.sizes.empty() ? 1 : to.strides[dim]),
        reader_(kLaneOf<T>, self.dtype, self.sizes.empty() ? 1 : self.strides[dim]),
        store_(storer(kLaneOf<T>, to.dtype)) {
    std::vector<int64_t> sizes(to.sizes.begin(), to.sizes.end());
    if (!sizes.empty()) sizes[dim] = std::min<int64_t>(sizes[dim], 1);
    rows_ = Iteration(sizes,
                      std::array{std::vector<int64_t>(to.strides.begin(), to.strides.end()),
                                 std::vector<int64_t>(self.strides.begin(), self.strides.end())});
  }
  bool fits() const { return rows_.fits(); }
  base::Status launch(device::Stream& stream) override {
    const std::byte* self = stream.resolve(self_);
    std::byte* to = stream.resolve(to_);
    rows_.for_each_row([&](const Offsets& at) {
      for (int64_t i = 0; i < rows_.inner(); ++i) {
        sum(to + (at[0] + i * rows_.inner_stride(0)) * to_element_,
            self + (at[1] + i * rows_.inner_stride(1)) * reader_.element);
      }
    });
    return {};
  }

 private:
  void sum(std::byte* to, const std::byte* self) const {
    Total total = 0;
    for (int64_t i = 0; i < count_; ++i) {
      total += static_cast<Total>(element<T>(reader_, self, i));
      const T value = static_cast<T>(total);
      store_(to + i * to_stride_ * to_element_, 1, &value, 1);
    }
  }
  std::byte *self_, *to_;
  int64_t to_element_, count_, to_stride_;
  LaneReader reader_;
  StoreLanes store_;
  Iteration rows_;
};

template <typename T>
Made make_cumsum(Call& call, const BoundTensor& self, const BoundTensor& to, size_t dim) {
  auto kernel = std::make_unique<CumulativeSum<T>>(self, to, dim);
  call.require(kernel->fits(), "its tensors have too many dims");
  return call.made(std::move(kernel));
}

Made cumsum(Call& call) {
  const BoundTensor self = call.tensor("self"), to = call.output(0);
  const size_t dim = call.dim("dim", self);
  call.same_sizes(self, to);
  if (!call.ok()) return call.made(nullptr);
  switch (lane_of_reduction(self.dtype, to.dtype)) {
    case Lane::F64:
      return make_cumsum<double>(call, self, to, dim);
    case Lane::F32:
      return make_cumsum<float>(call, self, to, dim);
    default:
      return make_cumsum<int64_t>(call, self, to, dim);
  }
}

// The first of equal elements; NaN wins. Elements are numbered in the order of dims.
template <typename T, bool kLargest>
class Extreme final : public Kernel {
 public:
  explicit Extreme(const ExtremeCall& of)
      : of_(of), reader_(kLaneOf<T>, of.self.dtype, 1), store_(storer(kLaneOf<T>, of.self.dtype)) {}

  base::Status launch(device::Stream& stream) override {
    const auto* self = static_cast<const std::byte*>(stream.resolve(of_.self.data));
    auto* indices = static_cast<int64_t*>(stream.resolve(of_.indices.data));
    auto* values = of_.values ? static_cast<std::byte*>(stream.resolve(of_.values->data)) : nullptr;
    const Iteration& kept = of_.kept;
    kept.for_each_row([&](const Offsets& at) {
      for (int64_t i = 0; i < kept.inner(); ++i) {
        T best;
        indices[at[2] + i * kept.inner_stride(2)] =
            find(self + (at[0] + i * kept.inner_stride(0)) * reader_.element, best);
        if (values == nullptr) continue;
        store_(values + (at[1] + i * kept.inner_stride(1)) * reader_.element, 1, &best, 1);
      }
    });
    return {};
  }

 private:
  int64_t find(const std::byte* self, T& best) const {
    const std::vector<int64_t>&sizes = of_.folded_sizes, &strides = of_.folded_strides;
    const int64_t count = base::numel(sizes);
    int64_t where = 0;
    best = element<T>(reader_, self, 0);
    for (int64_t i = 1; i < count && best == best; ++i) {
      int64_t rest = i, offset = 0;
      for (size_t d = sizes.size(); d-- > 0; rest /= sizes[d])
        offset += rest % sizes[d] * strides[d];
      const T x = element<T>(reader_, self, offset);
      if ((kLargest ? x > best : x < best) || x != x) {
        best = x;
        where = i;
      }
    }
    return where;
  }

  ExtremeCall of_;
  LaneReader reader_;
  StoreLanes store_;
};

template <bool kLargest, bool kHasValues>
Made extreme(Call& call) {
  const ExtremeCall of = read_extreme(call, kHasValues);
  if (of.self.dtype == base::DType::F64) return call.finish<Extreme<double, kLargest>>(of);
  if (base::is_floating(of.self.dtype)) return call.finish<Extreme<float, kLargest>>(of);
  return call.finish<Extreme<int64_t, kLargest>>(of);
}

constexpr Row kRows[] = {
    {"aten.argmax.default", extreme<true, false>},
    {"aten.argmin.default", extreme<false, false>},
    {"aten.cumsum.default", cumsum},
    {"aten.max.dim", extreme<true, true>},
    {"aten.min.dim", extreme<false, true>},
};

}  // namespace

std::span<const Row> scan_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
