#include "tests/random/reference_reductions.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "src/base/shape.h"

namespace dc::test {
namespace {

using base::DType;

constexpr size_t kChunk = 512, kLanes = 32, kRows = 64;

enum class What : uint8_t { Sum, Largest, Smallest };

What what_of(std::string_view op) {
  if (op.starts_with("aten.amax") || op.starts_with("aten.max")) return What::Largest;
  return op.starts_with("aten.amin") || op.starts_with("aten.min") ? What::Smallest : What::Sum;
}

template <typename T>
T neutral(What what) {
  if (what == What::Sum) return T{};
  const T largest = std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity()
                                                         : std::numeric_limits<T>::max();
  const T smallest = std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                                          : std::numeric_limits<T>::lowest();
  return what == What::Largest ? smallest : largest;
}
template <typename T>
T joined(What what, T a, T b) {
  if (what == What::Sum) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    return static_cast<T>(a + b);
  }
  if (a != a) return a;
  if (b != b) return b;
  // Of equal ones the second: 0 and -0.
  return (what == What::Largest ? a > b : a < b) ? a : b;
}

// In f64 where sums are.
template <typename T>
using Total = std::conditional_t<std::is_integral_v<T>, int64_t, double>;

template <typename T>
Total<T> of_row(What what, const std::vector<T>& row) {
  auto total = static_cast<Total<T>>(neutral<T>(what));
  for (size_t first = 0; first < row.size(); first += kChunk) {
    std::vector<T> lanes(kLanes, neutral<T>(what));
    for (size_t i = first; i < std::min(first + kChunk, row.size()); ++i)
      lanes[(i - first) % kLanes] = joined(what, lanes[(i - first) % kLanes], row[i]);
    for (size_t half = kLanes / 2; half > 0; half /= 2) {
      for (size_t i = 0; i < half; ++i) lanes[i] = joined(what, lanes[i], lanes[i + half]);
    }
    total = joined<Total<T>>(what, total, static_cast<Total<T>>(lanes[0]));
  }
  return total;
}
template <typename T>
Total<T> of_column(What what, const std::vector<T>& column) {
  auto total = static_cast<Total<T>>(neutral<T>(what));
  for (size_t first = 0; first < column.size(); first += kRows) {
    T sum = neutral<T>(what);
    for (size_t i = first; i < std::min(first + kRows, column.size()); ++i)
      sum = joined(what, sum, column[i]);
    total = joined<Total<T>>(what, total, static_cast<Total<T>>(sum));
  }
  return total;
}

template <typename T>
Elements reduce(std::string_view op, const Elements& operand, const std::vector<bool>& folded,
                DType dtype, const std::vector<int64_t>& sizes) {
  // Rows or columns of a matrix, by whether the last dim with several elements is folded.
  bool by_rows = true;
  for (size_t dim = 0; dim < folded.size(); ++dim)
    if (operand.sizes[dim] != 1) by_rows = folded[dim];
  const auto results = static_cast<size_t>(base::numel(sizes));
  const size_t each = operand.bits.size() / results;
  Elements made{dtype, sizes, std::vector<uint64_t>(results)};
  for (size_t result = 0; result < results; ++result) {
    std::vector<T> values(each);
    for (size_t i = 0; i < each; ++i) {
      const size_t place = by_rows ? result * each + i : i * results + result;
      values[i] = value_of<T>(operand.bits[place], operand.dtype);
    }
    const What what = what_of(op);
    Total<T> total = by_rows ? of_row(what, values) : of_column(what, values);
    if (op.starts_with("aten.mean"))
      total = static_cast<Total<T>>(total / static_cast<Total<T>>(each));
    made.bits[result] = bits_of<T>(static_cast<T>(total), dtype);
  }
  return made;
}

}  // namespace

bool is_reduction_of_dims(std::string_view op) {
  constexpr std::string_view kKnown[] = {"aten.sum.dim_IntList", "aten.mean.dim",
                                         "aten.amax.default", "aten.amin.default",
                                         "aten.sum.default"};
  return std::ranges::count(kKnown, op) != 0;
}

Elements interpret_reduction(std::string_view op, const Elements& operand,
                             const std::vector<int64_t>& dims, DType dtype,
                             const std::vector<int64_t>& sizes) {
  std::vector<bool> folded(operand.sizes.size(), dims.empty());
  for (const int64_t dim : dims) folded[static_cast<size_t>(dim)] = true;
  // Elements of a sum are converted to an integer result's type first.
  if (!base::is_floating(dtype)) return reduce<int64_t>(op, operand, folded, dtype, sizes);
  if (operand.dtype == DType::F64 || dtype == DType::F64)
    return reduce<double>(op, operand, folded, dtype, sizes);
  if (base::is_floating(operand.dtype) || base::is_floating(dtype))
    return reduce<float>(op, operand, folded, dtype, sizes);
  return reduce<int64_t>(op, operand, folded, dtype, sizes);
}

}  // namespace dc::test
