// Indices that choose nothing, and histograms without a range, end the run; nothing is read or
// written there.
#include <algorithm>
#include <bit>
#include <limits>
#include <random>
#include <set>

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

// Elements of so many bytes, in rows of `columns`, with indices of type I that choose columns.
template <typename E, typename I>
void gather_and_scatter(DType dtype, DType index_dtype, int64_t columns, int64_t chosen) {
  constexpr int64_t kRows = 5;
  std::mt19937 random(3);
  std::vector<E> self(kRows * columns), source(kRows * chosen);
  std::vector<I> indices(kRows * chosen);
  std::iota(self.begin(), self.end(), E{1});
  std::iota(source.begin(), source.end(), E{50});
  for (I& index : indices) index = static_cast<I>(random() % static_cast<unsigned>(columns));
  KernelBench bench;
  const auto from = tensor_arg(bench.filled<E>(dtype, {kRows, columns}, self), "self");
  const auto index = tensor_arg(bench.filled<I>(index_dtype, {kRows, chosen}, indices), "index");
  const auto src = tensor_arg(bench.filled<E>(dtype, {kRows, chosen}, source), "src");
  const int32_t gathered = bench.tensor(dtype, {kRows, chosen}),
                moved = bench.tensor(dtype, {kRows, columns}),
                valued = bench.tensor(dtype, {kRows, columns}),
                summed = bench.tensor(dtype, {kRows, columns});
  const plan::Arg dim = int_arg("dim", -1);
  const auto run = [&](const char* op, std::vector<plan::Arg> args, int32_t to) {
    const base::Status status = run_native(bench, instruction(op, std::move(args), {to}));
    EXPECT_TRUE(status.ok()) << status.to_string();
  };
  run("aten.gather.default", {from, dim, index}, gathered);
  run("aten.scatter.src", {from, dim, index, src}, moved);
  run("aten.scatter.value", {from, dim, index, int_arg("value", 9)}, valued);
  run("aten.scatter_add.default", {from, dim, index, src}, summed);
  std::vector<E> expected(kRows * chosen), of_moved = self, of_valued = self, of_summed = self;
  for (int64_t i = 0; i < kRows * chosen; ++i) {
    const auto at = static_cast<size_t>(i / chosen * columns + indices[static_cast<size_t>(i)]);
    expected[static_cast<size_t>(i)] = self[at];
    of_moved[at] = source[static_cast<size_t>(i)];
    of_valued[at] = E{9};
    of_summed[at] = static_cast<E>(of_summed[at] + source[static_cast<size_t>(i)]);
  }
  EXPECT_EQ(bench.values<E>(gathered), expected);
  EXPECT_EQ(bench.values<E>(moved), of_moved);
  EXPECT_EQ(bench.values<E>(valued), of_valued);
  EXPECT_EQ(bench.values<E>(summed), of_summed);
}

TEST(NativeGather, AndScatterOfEveryElementSize) {
  for (const auto& [columns, chosen] : {std::pair<int64_t, int64_t>{4, 2}, {3, 9}, {40, 1}}) {
    gather_and_scatter<uint8_t, int64_t>(DType::U8, DType::I64, columns, chosen);
    gather_and_scatter<int16_t, int32_t>(DType::I16, DType::I32, columns, chosen);
    gather_and_scatter<float, int64_t>(DType::F32, DType::I64, columns, chosen);
    gather_and_scatter<float, int32_t>(DType::F32, DType::I32, columns, chosen);
    gather_and_scatter<double, int64_t>(DType::F64, DType::I64, columns, chosen);
  }
}

// Numbers of which many are equal and some NaN, which is larger than every number. Which of equal
// ones are taken, native_samples_test compares with ATen.
TEST(NativeTopk, IsTheFrontOfASort) {
  std::mt19937 random(5);
  for (int64_t length = 1; length < 30; ++length) {
    for (int64_t k = 0; k <= length; ++k) {
      for (const bool largest : {true, false}) {
        std::vector<float> numbers(static_cast<size_t>(length));
        for (float& x : numbers) {
          const auto draw = random() % 9;
          x = draw == 0 ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(draw);
        }
        KernelBench bench;
        const int32_t self = bench.filled<float>(DType::F32, {length}, numbers),
                      values = bench.tensor(DType::F32, {k}),
                      indices = bench.tensor(DType::I64, {k});
        ASSERT_TRUE(run_native(bench, instruction("aten.topk.default",
                                                  {tensor_arg(self, "self"), int_arg("k", k),
                                                   int_arg("dim", 0), int_arg("largest", largest)},
                                                  {values, indices}))
                        .ok());
        std::vector<float> expected = numbers;
        std::ranges::sort(expected, [&](float a, float b) {
          const float left = largest ? b : a, right = largest ? a : b;
          return left < right || (right != right && left == left);
        });
        const std::vector<int64_t> taken = bench.values<int64_t>(indices);
        EXPECT_EQ(std::set(taken.begin(), taken.end()).size(), taken.size());
        for (size_t i = 0; i < taken.size(); ++i) {
          EXPECT_EQ(std::bit_cast<uint32_t>(bench.values<float>(values)[i]),
                    std::bit_cast<uint32_t>(expected[i]));
          EXPECT_EQ(std::bit_cast<uint32_t>(numbers.at(static_cast<size_t>(taken[i]))),
                    std::bit_cast<uint32_t>(expected[i]));
        }
      }
    }
  }
}

}  // namespace
}  // namespace dc::runtime
