// sort, topk and histc.
//
// NaN is larger than every number, as in PyTorch. Equal elements keep their order in sort. Which of
// them topk takes, and in which order, PyTorch leaves open; models depend on it all the same
// (scores of sparse attention behind a relu are often equal), so topk takes the steps that ATen
// takes on CPUs: std::partial_sort or std::nth_element and std::sort over the same elements.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/kernel/native/norms/rows.h"
#include "runtime/kernel/native/reductions/fold.h"
#include "runtime/kernel/native/registry.h"

namespace dc::runtime::kernel::native {
namespace {

template <typename T>
bool less(T a, T b) {
  return a < b || (b != b && a == a);
}

template <bool kDescending, typename T>
bool precedes(T x, T y) {
  return kDescending ? less(y, x) : less(x, y);
}

// A value and its index. A pair is copied member by member, where a plain struct would be read at
// once, which has to wait until both of its members are written.
template <typename T>
using Element = std::pair<T, int32_t>;

// All elements of a row in order.
struct InOrder {
  bool stable = false;

  template <bool kDescending, typename T>
  void arrange(std::span<Element<T>> row, int64_t /*taken*/) const {
    const auto before = [](const Element<T>& a, const Element<T>& b) {
      return precedes<kDescending>(a.first, b.first);
    };
    const auto before_or_first = [before](const Element<T>& a, const Element<T>& b) {
      return before(a, b) || (!before(b, a) && a.second < b.second);
    };
    stable ? std::sort(row.begin(), row.end(), before_or_first)
           : std::sort(row.begin(), row.end(), before);
  }
};

// The first k of a row, in order if they are wanted so.
struct TopK {
  bool sorted = true;

  template <bool kDescending, typename T>
  void arrange(std::span<Element<T>> row, int64_t taken) const {
    if (taken == 0) return;
    const auto before = [](const Element<T>& a, const Element<T>& b) {
      return precedes<kDescending>(a.first, b.first);
    };
    const auto length = static_cast<int64_t>(row.size());
    if (taken <= length / kOfMany) {
      std::partial_sort(row.begin(), row.begin() + taken, row.end(), before);
      return;
    }
    std::nth_element(row.begin(), row.begin() + taken - 1, row.end(), before);
    if (sorted) std::sort(row.begin(), row.begin() + taken - 1, before);
  }

 private:
  static constexpr int64_t kOfMany = 64;  // ATen's
};

// The first elements of each row as `Order` arranges them.
template <typename T, typename Order>
class Sort final : public Kernel {
 public:
  struct Tensors {
    BoundTensor self, values, indices;
    int64_t length = 0, taken = 0, self_stride = 0, values_stride = 0, indices_stride = 0;
  };
  Sort(const Iteration& rows, const Tensors& t, bool descending, Order order)
      : rows_(rows),
        t_(t),
        self_(t.self, t.self_stride),
        values_(t.values, t.values_stride),
        indices_(static_cast<std::byte*>(t.indices.data)),
        descending_(descending),
        order_(order),
        row_(static_cast<size_t>(t.length)) {}

  base::Status launch(device::Stream& stream) override {
    descending_ ? in_rows<true>(stream) : in_rows<false>(stream);
    return {};
  }

 private:
  template <bool kDescending>
  void in_rows(const device::Stream& stream) {
    const std::byte* self = self_.on(stream);
    std::byte* values = values_.on(stream);
    auto* indices = reinterpret_cast<int64_t*>(stream.resolve(indices_));
    rows_.for_each_row([&](const Offsets& at) {
      for (int64_t i = 0; i < rows_.inner(); ++i) {
        read(self_.row(self, at[2] + i * rows_.inner_stride(2)));
        order_.template arrange<kDescending, T>(row_, t_.taken);
        const int64_t to = at[0] + i * rows_.inner_stride(0);
        const int64_t to_indices = at[1] + i * rows_.inner_stride(1);
        for (int64_t k = 0; k < t_.taken; ++k) {
          values_.put(values, to + k * t_.values_stride, row_[k].first);
          indices[to_indices + k * t_.indices_stride] = row_[k].second;
        }
      }
    });
  }

  void read(const std::byte* from) {
    alignas(64) T block[kBlock];
    for (int64_t first = 0; first < t_.length; first += kBlock) {
      const int64_t n = std::min<int64_t>(kBlock, t_.length - first);
      const T* numbers = self_.read(block, from, first, n);
      for (int64_t i = 0; i < n; ++i)
        row_[first + i] = {numbers[i], static_cast<int32_t>(first + i)};
    }
  }

  Iteration rows_;
  Tensors t_;
  RowTensor<T> self_, values_;
  std::byte* indices_;
  bool descending_;
  Order order_;
  std::vector<Element<T>> row_;
};

template <typename T, typename Order>
Made make_sort(Call& call, size_t dim, bool descending, std::optional<int64_t> taken, Order order) {
  typename Sort<T, Order>::Tensors t;
  t.self = call.tensor("self");
  t.values = call.output(0);
  t.indices = call.output(1);
  call.require(t.indices.dtype == base::DType::I64 && t.values.dtype == t.self.dtype,
               "a result has another element type");
  call.same_sizes(t.values, t.indices);
  call.same_sizes(t.self, t.values, dim);
  if (!call.ok()) return call.made(nullptr);
  std::vector<int64_t> rows(t.values.sizes.begin(), t.values.sizes.end());
  const bool scalar = rows.empty();
  t.length = scalar ? 1 : t.self.sizes[dim];
  t.taken = scalar ? 1 : rows[dim];
  call.require(t.taken == taken.value_or(t.length), "the result has another number of elements");
  call.require(t.taken <= t.length && t.length <= INT32_MAX, "a row is too short or too long");
  t.self_stride = scalar ? 1 : t.self.strides[dim];
  t.values_stride = scalar ? 1 : t.values.strides[dim];
  t.indices_stride = scalar ? 1 : t.indices.strides[dim];
  if (!scalar) rows[dim] = std::min<int64_t>(rows[dim], 1);
  const auto all = [](const BoundTensor& tensor) {
    return std::vector<int64_t>(tensor.strides.begin(), tensor.strides.end());
  };
  const Iteration iteration(rows, std::array{all(t.values), all(t.indices), all(t.self)});
  call.require(iteration.fits(), "its tensors have too many dims");
  return call.finish<Sort<T, Order>>(iteration, t, descending, order);
}

// `taken`: elements of each row that are wanted; all if not given.
template <typename Order>
Made by_type(Call& call, size_t dim, bool descending, std::optional<int64_t> taken, Order order) {
  const base::DType dtype = call.tensor("self").dtype;
  if (dtype == base::DType::F64) return make_sort<double>(call, dim, descending, taken, order);
  if (base::is_floating(dtype)) return make_sort<float>(call, dim, descending, taken, order);
  return make_sort<int64_t>(call, dim, descending, taken, order);
}

Made sort(Call& call) {
  const size_t dim = call.dim("dim", call.tensor("self"), -1);
  const InOrder order{call.integer("stable", 0) != 0};
  return by_type(call, dim, call.integer("descending", 0) != 0, {}, order);
}
Made topk(Call& call) {
  const size_t dim = call.dim("dim", call.tensor("self"), -1);
  const TopK order{call.integer("sorted", 1) != 0};
  return by_type(call, dim, call.integer("largest", 1) != 0, call.integer("k"), order);
}

// Counts of elements in `bins` equal parts of [min, max]; others do not count. Equal ends stand for
// the smallest and the largest element; if these are equal too, one is added on both sides. Like
// PyTorch's, each operation is rounded to the elements' type, which decides at the ends of parts.
class Histogram final : public Kernel {
 public:
  Histogram(const Iteration& over, const BoundTensor& self, const BoundTensor& to, double low,
            double high)
      : over_(over),
        self_(self, 1),
        to_(to, to.strides[0]),
        dtype_(self.dtype),
        low_(low),
        high_(high),
        counts_(static_cast<size_t>(to.sizes[0])) {}
  base::Status launch(device::Stream& stream) override {
    const std::byte* self = self_.on(stream);
    std::byte* to = to_.on(stream);
    std::fill(counts_.begin(), counts_.end(), 0);
    const auto bins = static_cast<int64_t>(counts_.size());
    double low = low_, high = high_;
    if (low == high && over_.count() > 0) std::tie(low, high) = ends(self);
    if (!has_parts(low, high, bins)) {
      return base::Status(base::ErrorKind::BadInput, "DC6138",
                          "'aten.histc.default' met elements from " + std::to_string(low) + " to " +
                              std::to_string(high) +
                              ", a range that has no equal parts; check where NaN or infinity "
                              "comes from, or give histc its min and max");
    }
    low = rounded(low), high = rounded(high);
    // Without a width, of equal elements so large that one more makes no difference, or with one
    // that the type does not hold: the middle.
    const double width = rounded(high - low), parts = rounded(static_cast<double>(bins));
    over_.for_each_row([&](const Offsets& at) {
      for (int64_t i = 0; i < over_.inner(); ++i) {
        const double x = self_.get(self, at[0] + i * over_.inner_stride(0));
        if (!(x >= low && x <= high)) continue;
        const double place = rounded(rounded(rounded(x - low) * parts) / width);
        const int64_t bin = std::isfinite(place) ? static_cast<int64_t>(place) : bins / 2;
        counts_[std::clamp<int64_t>(bin, 0, bins - 1)] += 1;
      }
    });
    for (int64_t bin = 0; bin < bins; ++bin) to_.put(to, bin * to_.reader().stride, counts_[bin]);
    return {};
  }

  // Whether places in [low, high] are finite numbers of parts.
  static bool has_parts(double low, double high, int64_t bins) {
    return low <= high && std::isfinite((high - low) * static_cast<double>(bins));
  }

 private:
  // Of the elements; NaN if one is NaN.
  std::pair<double, double> ends(const std::byte* self) const {
    double low = MinFold<double>::neutral(), high = MaxFold<double>::neutral();
    over_.for_each_row([&](const Offsets& at) {
      for (int64_t i = 0; i < over_.inner(); ++i) {
        const double x = self_.get(self, at[0] + i * over_.inner_stride(0));
        MinFold<double>::join(low, x);
        MaxFold<double>::join(high, x);
      }
    });
    return low == high ? std::pair(low - 1, high + 1) : std::pair(low, high);
  }

  double rounded(double x) const {
    switch (dtype_) {
      case base::DType::BF16:
        return scalar::widen(scalar::narrow_bf16(static_cast<float>(x)));
      case base::DType::F16:
        return scalar::widen(scalar::narrow_f16(static_cast<float>(x)));
      case base::DType::F32:
        return static_cast<float>(x);
      default:
        return x;
    }
  }

  Iteration over_;
  RowTensor<double> self_, to_;
  base::DType dtype_;
  double low_, high_;
  std::vector<double> counts_;
};

Made histc(Call& call) {
  const BoundTensor self = call.tensor("self"), to = call.output(0);
  const double low = call.number("min", 0), high = call.number("max", 0);
  call.require(to.sizes.size() == 1, "the result must have one dim");
  if (!call.ok()) return call.made(nullptr);
  const int64_t bins = to.sizes[0];
  call.require(bins > 0 && bins == call.integer("bins", 100),
               "it needs bins, as many as the result has elements");
  call.require(Histogram::has_parts(low, high, bins), "'min' and 'max' have no range between them");
  if (!call.ok()) return call.made(nullptr);
  const Iteration over(self.sizes,
                       std::array{std::vector<int64_t>(self.strides.begin(), self.strides.end())});
  call.require(over.fits(), "its operand has too many dims");
  return call.finish<Histogram>(over, self, to, low, high);
}

constexpr Row kRows[] = {
    {"aten.histc.default", histc},
    {"aten.sort.default", sort},
    {"aten.sort.stable", sort},
    {"aten.topk.default", topk},
};

}  // namespace

std::span<const Row> order_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
