// Indices that choose nothing end the run; nothing is read or written there.
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

}  // namespace
}  // namespace dc::runtime
