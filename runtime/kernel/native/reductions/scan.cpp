// cumsum, and which element is the largest or smallest: along one dim, element by element.
#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "runtime/kernel/native/iteration.h"
#include "runtime/kernel/native/lanes.h"
#include "runtime/kernel/native/reductions/split.h"
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

template <typename K, typename... Fields>
Made finish(Call& call, const Fields&... fields) {
  auto kernel = std::make_unique<K>(fields...);
  call.require(kernel->fits(), "its tensors have too many dims");
  return call.made(std::move(kernel));
}

Made cumsum(Call& call) {
  const BoundTensor self = call.tensor("self"), to = call.output(0);
  const size_t dim = call.dim("dim", self);
  call.same_sizes(self, to);
  if (!call.ok()) return call.made(nullptr);
  if (self.dtype == base::DType::F64 || to.dtype == base::DType::F64)
    return finish<CumulativeSum<double>>(call, self, to, dim);
  if (base::is_floating(self.dtype) || base::is_floating(to.dtype))
    return finish<CumulativeSum<float>>(call, self, to, dim);
  return finish<CumulativeSum<int64_t>>(call, self, to, dim);
}

// The first of equal elements; NaN wins. Elements are numbered in the order of dims.
template <typename T, bool kLargest>
class Extreme final : public Kernel {
 public:
  // Without `values`, only the places are written.
  Extreme(const BoundTensor& self, const std::optional<BoundTensor>& values,
          const BoundTensor& indices, bool all, size_t dim)
      : self_(static_cast<std::byte*>(self.data)),
        values_(values ? static_cast<std::byte*>(values->data) : nullptr),
        indices_(static_cast<std::byte*>(indices.data)),
        values_element_(values ? base::byte_size(values->dtype) : 0),
        reader_(kLaneOf<T>, self.dtype, 1),
        store_(values ? storer(kLaneOf<T>, values->dtype) : nullptr) {
    const std::vector<int64_t> whole(self.sizes.begin(), self.sizes.end());
    const std::vector<int64_t> strides(self.strides.begin(), self.strides.end());
    std::vector<int64_t> kept(whole), kept_to, kept_values;
    for (size_t d = 0, next = 0; d < whole.size(); ++d) {
      const bool folded = all || d == dim;
      if (folded) kept[d] = std::min<int64_t>(kept[d], 1);
      const bool has = indices.sizes.size() == whole.size() || !folded;
      const bool used = has && next < indices.strides.size();
      kept_to.push_back(used ? indices.strides[next] : 0);
      kept_values.push_back(used && values ? values->strides[next] : 0);
      next += has ? 1 : 0;
      if (folded) {
        sizes_.push_back(whole[d]);
        strides_.push_back(strides[d]);
      }
    }
    kept_ = Iteration(kept, std::array{kept_to, kept_values, strides});
  }

  bool fits() const { return kept_.fits(); }
  base::Status launch(device::Stream& stream) override {
    const std::byte* self = stream.resolve(self_);
    auto* indices = reinterpret_cast<int64_t*>(stream.resolve(indices_));
    std::byte* values = values_ == nullptr ? nullptr : stream.resolve(values_);
    kept_.for_each_row([&](const Offsets& at) {
      for (int64_t i = 0; i < kept_.inner(); ++i) {
        T best;
        indices[at[0] + i * kept_.inner_stride(0)] =
            find(self + (at[2] + i * kept_.inner_stride(2)) * reader_.element, best);
        if (values == nullptr) continue;
        store_(values + (at[1] + i * kept_.inner_stride(1)) * values_element_, 1, &best, 1);
      }
    });
    return {};
  }

 private:
  int64_t find(const std::byte* self, T& best) const {
    const int64_t count = base::numel(sizes_);
    int64_t where = 0;
    best = element<T>(reader_, self, 0);
    for (int64_t i = 1; i < count && best == best; ++i) {
      int64_t rest = i, offset = 0;
      for (size_t d = sizes_.size(); d-- > 0; rest /= sizes_[d]) {
        offset += rest % sizes_[d] * strides_[d];
      }
      const T x = element<T>(reader_, self, offset);
      if ((kLargest ? x > best : x < best) || x != x) {
        best = x;
        where = i;
      }
    }
    return where;
  }
  std::byte *self_, *values_, *indices_;
  int64_t values_element_;
  LaneReader reader_;
  StoreLanes store_;
  Iteration kept_;
  std::vector<int64_t> sizes_, strides_;
};

// A result has size 1 in the folded dims, or is without them.
void check_kept(Call& call, const BoundTensor& self, const BoundTensor& to, bool all, size_t dim) {
  const bool keeps = to.sizes.size() == self.sizes.size();
  std::vector<int64_t> kept;
  for (size_t d = 0; d < self.sizes.size(); ++d) {
    const bool folded = all || d == dim;
    if (keeps || !folded) kept.push_back(folded ? 1 : self.sizes[d]);
  }
  call.require(std::equal(kept.begin(), kept.end(), to.sizes.begin(), to.sizes.end()),
               "the result has another shape");
}

template <bool kLargest>
Made extreme(Call& call, bool with_values) {
  const BoundTensor self = call.tensor("self");
  const BoundTensor indices = call.output(with_values ? 1 : 0);
  std::optional<BoundTensor> values;
  if (with_values) values = call.output(0);
  const bool all = !call.has_value("dim");
  const size_t dim = call.dim("dim", self);
  call.require(self.numel() > 0, "it has no elements");
  call.require(indices.dtype == base::DType::I64 && (!values || values->dtype == self.dtype),
               "a result has another element type");
  check_kept(call, self, indices, all, dim);
  if (values) call.same_sizes(*values, indices);
  if (!call.ok()) return call.made(nullptr);
  if (self.dtype == base::DType::F64)
    return finish<Extreme<double, kLargest>>(call, self, values, indices, all, dim);
  if (base::is_floating(self.dtype))
    return finish<Extreme<float, kLargest>>(call, self, values, indices, all, dim);
  return finish<Extreme<int64_t, kLargest>>(call, self, values, indices, all, dim);
}
template <bool kLargest>
Made index_only(Call& call) {
  return extreme<kLargest>(call, false);
}
template <bool kLargest>
Made with_index(Call& call) {
  return extreme<kLargest>(call, true);
}

constexpr Row kRows[] = {
    {"aten.argmax.default", index_only<true>}, {"aten.argmin.default", index_only<false>},
    {"aten.cumsum.default", cumsum},           {"aten.max.dim", with_index<true>},
    {"aten.min.dim", with_index<false>},
};

}  // namespace

std::span<const Row> scan_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
