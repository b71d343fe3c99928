// sort, topk and histc.
//
// NaN is larger than every number, as in PyTorch. Equal elements keep their order in sort. Which of
// them topk takes, and in which order, PyTorch leaves open; models depend on it all the same
// (scores of sparse attention behind a relu are often equal), so topk takes the steps that ATen
// takes on CPUs: std::partial_sort or std::nth_element and std::sort over the same elements.
#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/kernel/native/indexing/order_call.h"
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
  Sort(const OrderCall& of, Order order)
      : of_(of),
        self_(of.self, of.self_stride),
        values_(of.values, of.values_stride),
        order_(order),
        row_(static_cast<size_t>(of.length)) {}

  base::Status launch(device::Stream& stream) override {
    of_.is_descending ? in_rows<true>(stream) : in_rows<false>(stream);
    return {};
  }

 private:
  template <bool kDescending>
  void in_rows(const device::Stream& stream) {
    const std::byte* self = self_.on(stream);
    std::byte* values = values_.on(stream);
    auto* indices = static_cast<int64_t*>(stream.resolve(of_.indices.data));
    // Numbers that the compiler need not read again after each store of an index.
    const int64_t taken = of_.taken, inner = of_.rows.inner();
    const int64_t values_stride = of_.values_stride, indices_stride = of_.indices_stride;
    const int64_t step = of_.rows.inner_stride(0), values_step = of_.rows.inner_stride(1),
                  indices_step = of_.rows.inner_stride(2);
    const std::span<Element<T>> row = row_;
    of_.rows.for_each_row([&](const Offsets& at) {
      for (int64_t i = 0; i < inner; ++i) {
        read(row, self_.row(self, at[0] + i * step));
        order_.template arrange<kDescending, T>(row, taken);
        const int64_t to = at[1] + i * values_step;
        int64_t* to_indices = indices + at[2] + i * indices_step;
        for (int64_t k = 0; k < taken; ++k) {
          values_.put(values, to + k * values_stride, row[k].first);
          to_indices[k * indices_stride] = row[k].second;
        }
      }
    });
  }

  void read(std::span<Element<T>> row, const std::byte* from) const {
    alignas(64) T block[kBlock];
    const auto length = static_cast<int64_t>(row.size());
    for (int64_t first = 0; first < length; first += kBlock) {
      const int64_t n = std::min<int64_t>(kBlock, length - first);
      const T* numbers = self_.read(block, from, first, n);
      for (int64_t i = 0; i < n; ++i)
        row[first + i] = {numbers[i], static_cast<int32_t>(first + i)};
    }
  }

  OrderCall of_;
  RowTensor<T> self_, values_;
  Order order_;
  std::vector<Element<T>> row_;
};

template <typename Order>
Made make_order(Call& call, const OrderCall& of, Order order) {
  const base::DType dtype = of.self.dtype;
  if (dtype == base::DType::F64) return call.finish<Sort<double, Order>>(of, order);
  if (base::is_floating(dtype)) return call.finish<Sort<float, Order>>(of, order);
  return call.finish<Sort<int64_t, Order>>(of, order);
}

Made sort(Call& call) {
  const OrderCall of = read_sort(call, INT32_MAX);
  return make_order(call, of, InOrder{of.is_stable});
}
Made topk(Call& call) {
  const OrderCall of = read_topk(call, INT32_MAX);
  return make_order(call, of, TopK{of.is_sorted});
}

// Counts of elements in `bins` equal parts of [min, max]; others do not count. Equal ends stand for
// the smallest and the largest element; if these are equal too, one is added on both sides. Like
// PyTorch's, each operation is rounded to the elements' type, which decides at the ends of parts.
class Histogram final : public Kernel {
 public:
  explicit Histogram(const HistogramCall& of)
      : of_(of),
        self_(of.self, 1),
        to_(of.to, of.to.strides[0]),
        counts_(static_cast<size_t>(of.bins)) {}
  base::Status launch(device::Stream& stream) override {
    const std::byte* self = self_.on(stream);
    std::byte* to = to_.on(stream);
    std::fill(counts_.begin(), counts_.end(), 0);
    double low = of_.low, high = of_.high;
    if (low == high && of_.elements.count() > 0) std::tie(low, high) = ends(self);
    if (!has_parts(low, high, of_.bins)) {
      return base::Status(base::ErrorKind::BadInput, "DC6138",
                          "'aten.histc.default' met elements from " + std::to_string(low) + " to " +
                              std::to_string(high) +
                              ", a range that has no equal parts; check where NaN or infinity "
                              "comes from, or give histc its min and max");
    }
    low = rounded(low), high = rounded(high);
    // Without a width, of equal elements so large that one more makes no difference, or with one
    // that the type does not hold: the middle.
    const double width = rounded(high - low), parts = rounded(static_cast<double>(of_.bins));
    of_.elements.for_each_row([&](const Offsets& at) {
      for (int64_t i = 0; i < of_.elements.inner(); ++i) {
        const double x = self_.get(self, at[0] + i * of_.elements.inner_stride(0));
        if (!(x >= low && x <= high)) continue;
        const double place = rounded(rounded(rounded(x - low) * parts) / width);
        const int64_t bin = std::isfinite(place) ? static_cast<int64_t>(place) : of_.bins / 2;
        counts_[std::clamp<int64_t>(bin, 0, of_.bins - 1)] += 1;
      }
    });
    for (int64_t bin = 0; bin < of_.bins; ++bin)
      to_.put(to, bin * to_.reader().stride, counts_[bin]);
    return {};
  }

 private:
  // Of the elements; NaN if one is NaN.
  std::pair<double, double> ends(const std::byte* self) const {
    double low = MinFold<double>::neutral(), high = MaxFold<double>::neutral();
    of_.elements.for_each_row([&](const Offsets& at) {
      for (int64_t i = 0; i < of_.elements.inner(); ++i) {
        const double x = self_.get(self, at[0] + i * of_.elements.inner_stride(0));
        MinFold<double>::join(low, x);
        MaxFold<double>::join(high, x);
      }
    });
    return low == high ? std::pair(low - 1, high + 1) : std::pair(low, high);
  }

  double rounded(double x) const {
    switch (of_.self.dtype) {
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

  HistogramCall of_;
  RowTensor<double> self_, to_;
  std::vector<double> counts_;
};

Made histc(Call& call) { return call.finish<Histogram>(read_histogram(call)); }

constexpr Row kRows[] = {
    {"aten.histc.default", histc},
    {"aten.sort.default", sort},
    {"aten.sort.stable", sort},
    {"aten.topk.default", topk},
};

}  // namespace

std::span<const Row> order_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
