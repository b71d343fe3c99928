// Rows of every length and element size are copied and filled whole, and nothing around them.
#include <functional>
#include <numeric>

#include "tests/runtime/kernel/kernel_bench.h"

namespace dc::runtime {
namespace {

using base::DType;

template <typename E>
std::vector<E> numbered(size_t count) {
  std::vector<E> values(count);
  std::iota(values.begin(), values.end(), E{1});
  return values;
}

template <typename E>
class NativeCopies : public testing::Test {
 protected:
  // Integers of as many bytes as every element type has.
  static constexpr DType kDType = sizeof(E) == 1   ? DType::U8
                                  : sizeof(E) == 2 ? DType::I16
                                  : sizeof(E) == 4 ? DType::I32
                                                   : DType::I64;
};
using ElementTypes = testing::Types<uint8_t, int16_t, int32_t, int64_t>;
TYPED_TEST_SUITE(NativeCopies, ElementTypes);

// Rows of two tensors behind each other.
template <typename E>
void concatenate(DType dtype, int64_t length, int64_t other) {
  constexpr int64_t kRows = 3;
  KernelBench bench;
  const auto left = numbered<E>(static_cast<size_t>(kRows * length)),
             right = numbered<E>(static_cast<size_t>(kRows * other));
  plan::Arg parts;
  parts.name = "tensors";
  parts.kind = plan::ArgKind::Tensors;
  parts.ints = {bench.filled<E>(dtype, {kRows, length}, left),
                bench.filled<E>(dtype, {kRows, other}, right)};
  const int32_t to = bench.tensor(dtype, {kRows, length + other});
  ASSERT_TRUE(
      run_native(bench, instruction("aten.cat.default", {parts, int_arg("dim", 1)}, {to})).ok());
  std::vector<E> expected;
  for (int64_t row = 0; row < kRows; ++row) {
    expected.insert(expected.end(), left.begin() + row * length, left.begin() + (row + 1) * length);
    expected.insert(expected.end(), right.begin() + row * other, right.begin() + (row + 1) * other);
  }
  EXPECT_EQ(bench.values<E>(to), expected) << length << " and " << other;
}

TYPED_TEST(NativeCopies, OfRowsOfEveryLength) {
  for (int64_t length = 1; length < 150; ++length)
    concatenate<TypeParam>(this->kDType, length, length % 7);
  for (const int64_t length : {512, 513, 600, 5000})
    concatenate<TypeParam>(this->kDType, length, length + 5);
}

TYPED_TEST(NativeCopies, BetweenRowsOfZeros) {
  constexpr int64_t kRows = 3;
  for (const int64_t length : {1, 2, 3, 7, 8, 15, 16, 31, 33, 64, 100, 255, 256, 257, 5000}) {
    KernelBench bench;
    const auto part = numbered<TypeParam>(static_cast<size_t>(kRows * length));
    const int32_t from = bench.filled<TypeParam>(this->kDType, {kRows, length}, part);
    const int32_t to = bench.tensor(this->kDType, {kRows, 2 * length + 1});
    ASSERT_TRUE(run_native(bench, instruction("aten.slice_backward.default",
                                              {tensor_arg(from, "grad_output"), int_arg("dim", 1),
                                               int_arg("start", length), int_arg("end", 2 * length),
                                               int_arg("step", 1)},
                                              {to}))
                    .ok());
    std::vector<TypeParam> expected(static_cast<size_t>(kRows * (2 * length + 1)));
    for (int64_t row = 0; row < kRows; ++row)
      std::copy_n(part.begin() + row * length, length,
                  expected.begin() + row * (2 * length + 1) + length);
    EXPECT_EQ(bench.values<TypeParam>(to), expected) << length;
  }
}

// Rows of the result are columns of the operand; both have gaps.
TYPED_TEST(NativeCopies, OfColumnsAsRows) {
  for (const int64_t rows : {1, 3, 4, 7, 8, 16, 31, 33, 70}) {
    for (const int64_t columns : {1, 2, 4, 5, 8, 15, 32, 41}) {
      KernelBench bench;
      const int64_t from_step = columns + 3, to_step = rows + 2;
      const auto elements = numbered<TypeParam>(static_cast<size_t>(rows * from_step));
      const int32_t from = bench.tensor(this->kDType, {columns, rows}, {1, from_step});
      const int32_t to = bench.tensor(this->kDType, {columns, rows}, {to_step, 1});
      const auto in = [&](int64_t i, int64_t j) {
        return elements[static_cast<size_t>(i * from_step + j)];
      };
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j)
          bench.data<TypeParam>(from)[i * from_step + j] = in(i, j);
      }
      for (int64_t j = 0; j + 1 < columns; ++j)
        bench.data<TypeParam>(to)[j * to_step + rows] = TypeParam{7};
      const auto status =
          run_native(bench, instruction("aten.clone.default", {tensor_arg(from, "self")}, {to}));
      ASSERT_TRUE(status.ok()) << status.to_string();
      for (int64_t j = 0; j < columns; ++j) {
        for (int64_t i = 0; i < rows; ++i)
          ASSERT_EQ(bench.data<TypeParam>(to)[j * to_step + i], in(i, j)) << rows << " " << columns;
        if (j + 1 < columns) {
          ASSERT_EQ(bench.data<TypeParam>(to)[j * to_step + rows], TypeParam{7});
        }
      }
    }
  }
}

// Elements, numbered by their places, next to the definition: those of a dim move by its shift, or,
// without dims, all in row-major order.
void roll(const KernelBench::Sizes& sizes, const std::vector<int64_t>& shifts,
          const std::vector<int64_t>& dims) {
  KernelBench bench;
  const KernelBench::Sizes strides = KernelBench::contiguous(sizes);
  const int64_t count =
      std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  const auto values = numbered<int32_t>(static_cast<size_t>(count));
  const int32_t from = bench.filled<int32_t>(DType::I32, sizes, values),
                to = bench.tensor(DType::I32, sizes);
  ASSERT_TRUE(run_native(bench, instruction("aten.roll.default",
                                            {tensor_arg(from, "self"), list_arg("shifts", shifts),
                                             list_arg("dims", dims)},
                                            {to}))
                  .ok());
  const auto moved = [](int64_t place, int64_t shift, int64_t size) {
    return ((place + shift) % size + size) % size;
  };
  std::vector<int32_t> expected(values.size());
  for (int64_t i = 0; i < count; ++i) {
    int64_t place = dims.empty() ? moved(i, shifts[0], count) : i;
    for (size_t k = 0; k < dims.size(); ++k) {
      const auto dim = static_cast<size_t>(dims[k] + (dims[k] < 0 ? std::ssize(sizes) : 0));
      const int64_t at = place / strides[dim] % sizes[dim];
      place += (moved(at, shifts[k], sizes[dim]) - at) * strides[dim];
    }
    expected[static_cast<size_t>(place)] = values[static_cast<size_t>(i)];
  }
  EXPECT_EQ(bench.values<int32_t>(to), expected)
      << testing::PrintToString(sizes) << " by " << testing::PrintToString(shifts);
}

TEST(NativeRoll, OfDimsAndOfAllElements) {
  for (const KernelBench::Sizes& sizes :
       std::vector<KernelBench::Sizes>{{7}, {1, 5}, {4, 1, 3}, {3, 4, 5}, {2, 3, 2, 4}, {}}) {
    for (int64_t shift = -70; shift <= 70; ++shift) roll(sizes, {shift}, {});
    for (int64_t dim = 0; dim < std::ssize(sizes); ++dim) {
      for (int64_t shift = -8; shift <= 8; ++shift) {
        roll(sizes, {shift}, {dim});
        roll(sizes, {shift, 3 - shift}, {dim, -1});  // which may be one dim twice
      }
    }
  }
  roll({3, 0, 2}, {5}, {});
  roll({3, 0, 2}, {5}, {1});
}

TEST(NativeRoll, WhatDoesNotFitIsRefused) {
  KernelBench bench;
  const int32_t from = bench.tensor(DType::F32, {3, 4}), to = bench.tensor(DType::F32, {3, 4});
  using List = std::vector<int64_t>;
  for (const auto& [shifts, dims] : std::vector<std::pair<List, List>>{
           {{}, {}}, {{1, 2}, {}}, {{1}, {0, 1}}, {{1, 2}, {0}}, {{1}, {2}}, {{1}, {-3}}}) {
    const base::Status status = run_native(
        bench,
        instruction("aten.roll.default",
                    {tensor_arg(from, "self"), list_arg("shifts", shifts), list_arg("dims", dims)},
                    {to}));
    EXPECT_EQ(status.code(), "DC6130") << testing::PrintToString(shifts);
  }
}

}  // namespace
}  // namespace dc::runtime
