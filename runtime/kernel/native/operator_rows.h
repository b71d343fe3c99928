// Operators of which one factory makes all kernels: a table says what each of them is.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace dc::runtime::kernel::native {

// For each operator a row, {op, factory}, of a table of kernels.
template <typename KernelRow, typename Operator, size_t kCount, typename Factory>
constexpr std::array<KernelRow, kCount> operator_rows(const Operator (&operators)[kCount],
                                                      Factory factory) {
  std::array<KernelRow, kCount> rows{};
  std::ranges::transform(operators, rows.begin(), [factory](const Operator& each) {
    return KernelRow{each.op, factory};
  });
  return rows;
}

// The one of this name, which is there.
template <typename Operator, size_t kCount>
const Operator& operator_of(const Operator (&operators)[kCount], std::string_view op) {
  return *std::ranges::find(operators, op, &Operator::op);
}

}  // namespace dc::runtime::kernel::native
