// Tensors that a kernel of an ATen operator must not write are refused before anything runs.
#include "tests/runtime/kernel/kernel_bench.h"

namespace dc::runtime {
namespace {

using base::DType;
using Sizes = KernelBench::Sizes;

void expect_refused(const base::Status& status) {
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), "DC6130") << status.to_string();
  EXPECT_EQ(status.kind(), base::ErrorKind::Unsupported);
}

base::Status negate_into(const Sizes& sizes, const Sizes& strides) {
  KernelBench bench;
  const int32_t x = bench.tensor(DType::F32, sizes), y = bench.tensor(DType::F32, sizes, strides);
  return run_native(bench, instruction("aten.neg.default", {tensor_arg(x, "self")}, {y}));
}

TEST(NativeResult, WithElementsInOnePlaceIsRefused) {
  expect_refused(negate_into({4}, {0}));
  expect_refused(negate_into({3, 4}, {1, 0}));
  expect_refused(negate_into({3, 4}, {3, 1}));
  expect_refused(negate_into({2, 3, 4}, {4, 4, 1}));
}

TEST(NativeResult, WithGapsOrUnusedStridesIsTaken) {
  for (const auto& [sizes, strides] : std::vector<std::pair<Sizes, Sizes>>{{{3, 4}, {8, 2}},
                                                                           {{3, 4}, {1, 3}},
                                                                           {{3, 1}, {1, 0}},
                                                                           {{3, 1, 4}, {4, 1, 1}},
                                                                           {{}, {}}}) {
    EXPECT_TRUE(negate_into(sizes, strides).ok());
  }
  EXPECT_TRUE(negate_into({0, 4}, {0, 0}).ok());
}

TEST(NativeResult, OfRowsHasTheShapeOfTheRows) {
  KernelBench bench;
  const int32_t x = bench.tensor(DType::F32, {3, 4}), one = bench.tensor(DType::F32, {3, 1});
  const int32_t y = bench.tensor(DType::F32, {3, 4});
  const auto softmax = [&](int32_t from, int32_t to) {
    return run_native(bench, instruction("aten._softmax.default",
                                         {tensor_arg(from, "self"), int_arg("dim", -1)}, {to}));
  };
  EXPECT_TRUE(softmax(x, y).ok());
  expect_refused(softmax(x, one));
  expect_refused(softmax(one, y));
  plan::Arg shape;
  shape.name = "normalized_shape";
  shape.kind = plan::ArgKind::Ints;
  shape.ints = {4};
  const auto norm = [&](int32_t to, int32_t mean, int32_t rstd) {
    return run_native(bench, instruction("aten.native_layer_norm.default",
                                         {tensor_arg(x, "input"), shape}, {to, mean, rstd}));
  };
  EXPECT_TRUE(norm(y, one, one).ok());
  EXPECT_TRUE(norm(y, one, -1).ok());
  expect_refused(norm(y, one, x));
  expect_refused(norm(one, one, one));
}

}  // namespace
}  // namespace dc::runtime
