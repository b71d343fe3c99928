// Indices that choose nothing, and histograms without a range, end the run; nothing is read or
// written there.
#include <limits>

#include "tests/runtime/kernel/kernel_bench.h"

namespace dc::runtime {
namespace {

using base::DType;

void expect_refused(const base::Status& status) {
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), "DC6137") << status.to_string();
  EXPECT_EQ(status.kind(), base::ErrorKind::BadInput);
}

class NativeIndex : public testing::TestWithParam<int64_t> {};

TEST_P(NativeIndex, OutsideOfItsDimIsAnError) {
  const int64_t bad = GetParam();
  KernelBench bench;
  const int32_t table = bench.filled<float>(DType::F32, {4, 2}, std::vector<float>(8, 1));
  const int32_t indices = bench.filled<int64_t>(DType::I64, {3}, {0, bad, 3});
  const int32_t rows = bench.filled<float>(DType::F32, {3, 2}, std::vector<float>(6, 1));
  const int32_t result = bench.tensor(DType::F32, {3, 2});
  expect_refused(run_native(
      bench, instruction("aten.embedding.default",
                         {tensor_arg(table, "weight"), tensor_arg(indices, "indices")}, {result})));
  const int32_t gradient = bench.tensor(DType::F32, {4, 2});
  expect_refused(run_native(
      bench, instruction("aten.embedding_dense_backward.default",
                         {tensor_arg(rows, "grad_output"), tensor_arg(indices, "indices"),
                          int_arg("num_weights", 4), int_arg("padding_idx", -1)},
                         {gradient})));
  expect_refused(run_native(bench, instruction("aten.index_select.default",
                                               {tensor_arg(table, "self"), int_arg("dim", 0),
                                                tensor_arg(indices, "index")},
                                               {result})));
  const int32_t targets = bench.filled<int64_t>(DType::I64, {4}, {0, bad, 1, 1});
  const int32_t loss = bench.tensor(DType::F32, {}), total = bench.tensor(DType::F32, {});
  expect_refused(
      run_native(bench, instruction("aten.nll_loss_forward.default",
                                    {tensor_arg(table, "self"), tensor_arg(targets, "target"),
                                     int_arg("reduction", 1), int_arg("ignore_index", -100)},
                                    {loss, total})));
}

INSTANTIATE_TEST_SUITE_P(BelowAndAbove, NativeIndex, testing::Values(-1, 4, int64_t{1} << 40));

base::Status histogram(const std::vector<float>& elements, int64_t bins, double min, double max) {
  KernelBench bench;
  const int32_t x =
      bench.filled<float>(DType::F32, {static_cast<int64_t>(elements.size())}, elements);
  const int32_t counts = bench.tensor(DType::F32, {bins});
  return run_native(bench, instruction("aten.histc.default",
                                       {tensor_arg(x, "self"), int_arg("bins", bins),
                                        float_arg("min", min), float_arg("max", max)},
                                       {counts}));
}

TEST(NativeHistogram, WithoutAFiniteRangeIsAnError) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(histogram({1, 2, nan}, 3, 0, 2).ok());
  EXPECT_TRUE(histogram({1e30f, 1e30f}, 3, 0, 0).ok());
  for (const float bad : {kInfinity, -kInfinity, nan}) {
    const base::Status status = histogram({1, bad, 2}, 3, 0, 0);
    ASSERT_FALSE(status.ok()) << bad;
    EXPECT_EQ(status.code(), "DC6138") << status.to_string();
    EXPECT_EQ(status.kind(), base::ErrorKind::BadInput);
  }
}

TEST(NativeHistogram, WithoutPartsIsRefused) {
  EXPECT_EQ(histogram({1, 2}, 0, 0, 1).code(), "DC6130");
  EXPECT_EQ(histogram({1, 2}, 3, 2, 1).code(), "DC6130");
  EXPECT_EQ(histogram({1, 2}, 3, 0, std::numeric_limits<double>::infinity()).code(), "DC6130");
  EXPECT_EQ(histogram({1, 2}, 3, -1.7e308, 1.7e308).code(), "DC6130");
}

}  // namespace
}  // namespace dc::runtime
