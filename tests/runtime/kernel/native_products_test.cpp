// Products on oneDNN against sums in double precision: odd sizes, rows and columns, gaps, batches
// that repeat a matrix, what is added and how, and results with strides.
#include <cmath>
#include <numeric>

#include "runtime/kernel/native/convert.h"
#include "src/base/shape.h"
#include "tests/runtime/kernel/kernel_bench.h"

namespace dc::runtime {
namespace {

using base::DType;
using Sizes = std::vector<int64_t>;

class Products : public testing::TestWithParam<DType> {
 protected:
  // A tensor of small numbers that bf16 holds exactly.
  int32_t filled(const Sizes& sizes, Sizes strides = {}) {
    const int32_t id = bench_.tensor(GetParam(), sizes, std::move(strides));
    const int64_t extent = base::extent(sizes, bench_.plan().tensors.back().strides);
    for (int64_t i = 0; i < extent; ++i) {
      seed_ = seed_ * 1664525 + 1013904223;
      set(id, i, (static_cast<double>(seed_ >> 24) - 128) / 64);
    }
    return id;
  }

  void set(int32_t id, int64_t at, double value) {
    if (GetParam() == DType::F32) {
      bench_.data<float>(id)[at] = static_cast<float>(value);
    } else {
      bench_.data<kernel::native::BF16>(id)[at] =
          kernel::native::narrow_bf16(static_cast<float>(value));
    }
  }
  double get(int32_t id, int64_t at) {
    return GetParam() == DType::F32
               ? bench_.data<float>(id)[at]
               : kernel::native::widen(bench_.data<kernel::native::BF16>(id)[at]);
  }
  double at(int32_t id, int64_t batch, int64_t row, int64_t column) {
    const plan::Tensor& tensor = bench_.plan().tensors[static_cast<size_t>(id)];
    const int64_t index[] = {batch, row, column};
    int64_t place = 0;
    const size_t dims = tensor.sizes.size();
    for (size_t dim = 0; dim < dims; ++dim) {
      const int64_t i = index[3 - dims + dim];
      if (tensor.sizes[dim] > 1) place += i * tensor.strides[dim];
    }
    return get(id, place);
  }

  void run(plan::Instruction step) {
    auto provider = kernel::make_native_provider();
    const auto bytes = provider->measure_scratch(step, bench_.addresses());
    ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
    if (*bytes > 0) step.scratch = bench_.slice(*bytes);
    auto kernel = provider->prepare(step, bench_.addresses());
    ASSERT_TRUE(kernel.ok()) << kernel.status().to_string();
    for (int repeat = 0; repeat < 2; ++repeat) {
      const auto status = (*kernel)->launch(*device::cpu_device().make_stream());
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
  }

  // One rounding of the result, and those of the sums.
  double bound(int64_t depth) const {
    const double sums = static_cast<double>(depth + 2) * 4 * 4 * 0x1p-24;
    return sums;
  }
  void expect_product(int32_t a, int32_t b, int32_t added, double alpha, double beta, int32_t out) {
    const plan::Tensor& left = bench_.plan().tensors[static_cast<size_t>(a)];
    const plan::Tensor& result = bench_.plan().tensors[static_cast<size_t>(out)];
    const bool batched = result.sizes.size() == 3;
    const int64_t depth = left.sizes.back(), columns = result.sizes.back();
    const int64_t rows = result.sizes[result.sizes.size() - 2];
    for (int64_t n = 0; n < (batched ? result.sizes[0] : 1); ++n) {
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
          double sum = 0;
          for (int64_t k = 0; k < depth; ++k) sum += at(a, n, i, k) * at(b, n, k, j);
          sum *= alpha;
          if (added >= 0 && beta != 0) sum += beta * at(added, n, i, j);
          const double rounding = GetParam() == DType::F32 ? 0x1p-24 : 0x1p-8;
          ASSERT_NEAR(at(out, n, i, j), sum, bound(depth) + rounding * std::fabs(sum))
              << n << " " << i << " " << j;
        }
      }
    }
  }

  void multiply(const std::string& op, int32_t a, int32_t b, int32_t out) {
    run(instruction(op, {tensor_arg(a, "self"), tensor_arg(b, "mat2")}, {out}));
    expect_product(a, b, -1, 1, 0, out);
  }
  void multiply_and_add(int32_t added, int32_t a, int32_t b, double alpha, double beta,
                        int32_t out) {
    const bool batched = bench_.plan().tensors[static_cast<size_t>(out)].sizes.size() == 3;
    run(instruction(batched ? "aten.baddbmm.default" : "aten.addmm.default",
                    {tensor_arg(added, "self"), tensor_arg(a, batched ? "batch1" : "mat1"),
                     tensor_arg(b, batched ? "batch2" : "mat2"), float_arg("beta", beta),
                     float_arg("alpha", alpha)},
                    {out}));
    expect_product(a, b, added, alpha, beta, out);
  }

  KernelBench bench_;
  uint32_t seed_ = 1;
};

TEST_P(Products, OfOddSizesByRowsAndByColumns) {
  for (const auto& [m, k, n] : std::vector<std::array<int64_t, 3>>{{1, 1, 1},
                                                                   {1, 3, 17},
                                                                   {3, 1, 5},
                                                                   {17, 3, 1},
                                                                   {1, 17, 1},
                                                                   {3, 17, 3},
                                                                   {17, 33, 65},
                                                                   {64, 64, 64},
                                                                   {65, 255, 3},
                                                                   {3, 257, 17},
                                                                   {100, 330, 9},
                                                                   {1056, 40, 17}}) {
    for (const bool left_columns : {false, true}) {
      for (const bool right_columns : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << m << "x" << k << "x" << n << left_columns << right_columns);
        const int32_t a = filled({m, k}, left_columns ? Sizes{1, m} : Sizes{k, 1});
        const int32_t b = filled({k, n}, right_columns ? Sizes{1, k} : Sizes{n, 1});
        multiply("aten.mm.default", a, b, bench_.tensor(GetParam(), {m, n}));
      }
    }
  }
}

TEST_P(Products, OfMatricesWithGaps) {
  const int32_t a = filled({17, 9}, {21, 1}), b = filled({9, 5}, {12, 2});
  multiply("aten.mm.default", a, b, bench_.tensor(GetParam(), {17, 5}));
  multiply("aten.mm.default", filled({17, 9}, {0, 1}), filled({9, 5}, {0, 0}),
           bench_.tensor(GetParam(), {17, 5}));
}

TEST_P(Products, IntoResultsWithStrides) {
  multiply("aten.mm.default", filled({7, 9}), filled({9, 5}),
           bench_.tensor(GetParam(), {7, 5}, {1, 7}));
  multiply("aten.bmm.default", filled({2, 7, 9}), filled({2, 9, 5}),
           bench_.tensor(GetParam(), {2, 7, 5}, {5, 10, 1}));
}

TEST_P(Products, OfBatches) {
  const std::vector<Sizes> lefts = {{63, 9, 1}, {63, 1, 7},   {9, 27, 1},
                                    {0, 9, 1},  {100, 10, 1}, {0, 1, 7}};
  const std::vector<Sizes> rights = {{45, 5, 1}, {45, 1, 9}, {5, 15, 1}, {0, 5, 1}};
  for (const Sizes& left : lefts) {
    for (const Sizes& right : rights) {
      SCOPED_TRACE(testing::Message()
                   << left[0] << "," << left[1] << " " << right[0] << "," << right[1]);
      multiply("aten.bmm.default", filled({3, 7, 9}, left), filled({3, 9, 5}, right),
               bench_.tensor(GetParam(), {3, 7, 5}));
    }
  }
  multiply("aten.bmm.default", filled({1, 7, 9}), filled({1, 9, 5}),
           bench_.tensor(GetParam(), {1, 7, 5}));
}

// Of f32, a left side by columns and a right side in the first-level cache are multiplied where
// they are: the sums in order, by fused multiply-adds.
TEST_P(Products, OfALeftSideByColumnsAreSumsInOrder) {
  if (GetParam() != DType::F32) GTEST_SKIP() << "bf16 goes to oneDNN";
  for (const auto& [count, m, k, n] : std::vector<std::array<int64_t, 4>>{{1, 2, 2, 16},
                                                                          {1, 256, 64, 64},
                                                                          {1, 97, 255, 32},
                                                                          {1, 1024, 256, 32},
                                                                          {1, 5, 256, 32},
                                                                          {1, 13, 8, 1008},
                                                                          {4, 96, 64, 64},
                                                                          {3, 7, 33, 48}}) {
    SCOPED_TRACE(testing::Message() << count << "x" << m << "x" << k << "x" << n);
    const int32_t a = filled({count, m, k}, {m * k, 1, m}), b = filled({count, k, n});
    const int32_t out = bench_.tensor(DType::F32, {count, m, n});
    for (int64_t i = 0; i < count * k * n; ++i) set(b, i, get(b, i) / 3);  // sums are rounded
    run(instruction("aten.bmm.default", {tensor_arg(a, "self"), tensor_arg(b, "mat2")}, {out}));
    for (int64_t of = 0; of < count; ++of) {
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          float sum = 0;
          for (int64_t l = 0; l < k; ++l)
            sum = std::fma(static_cast<float>(at(a, of, i, l)), static_cast<float>(at(b, of, l, j)),
                           sum);
          ASSERT_EQ(at(out, of, i, j), sum) << of << " " << i << " " << j;
        }
      }
    }
  }
}

TEST_P(Products, AndWhatIsAdded) {
  const int32_t a = filled({7, 9}), b = filled({9, 5}, {1, 9});
  const std::vector<std::pair<Sizes, Sizes>> forms = {
      {{5}, {1}},       {{5}, {3}},       {{1}, {1}},       {{}, {}},        {{7, 5}, {5, 1}},
      {{7, 5}, {1, 7}}, {{7, 1}, {1, 1}}, {{1, 5}, {5, 1}}, {{7, 5}, {0, 1}}};
  for (const auto& [sizes, strides] : forms) {
    for (const auto& [alpha, beta] :
         std::vector<std::pair<double, double>>{{1, 1}, {0.5, 1}, {1, 2}, {-1, 0.25}, {2, 0}}) {
      SCOPED_TRACE(testing::Message() << sizes.size() << " " << alpha << " " << beta);
      multiply_and_add(filled(sizes, strides), a, b, alpha, beta,
                       bench_.tensor(GetParam(), {7, 5}));
    }
  }
}

TEST_P(Products, OfBatchesAndWhatIsAdded) {
  const int32_t a = filled({3, 7, 9}), b = filled({3, 9, 5});
  for (const Sizes& sizes :
       {Sizes{5}, Sizes{1, 1, 5}, Sizes{3, 7, 5}, Sizes{7, 5}, Sizes{3, 1, 1}}) {
    multiply_and_add(filled(sizes), a, b, 1, 1, bench_.tensor(GetParam(), {3, 7, 5}));
    multiply_and_add(filled(sizes), a, b, 0.5, 0.5,
                     bench_.tensor(GetParam(), {3, 7, 5}, {35, 1, 7}));
  }
}

TEST_P(Products, RefuseWhatTheyCannotMultiply) {
  const auto refusal = [&](int32_t a, int32_t b, int32_t out) {
    return kernel::make_native_provider()
        ->prepare(
            instruction("aten.mm.default", {tensor_arg(a, "self"), tensor_arg(b, "mat2")}, {out}),
            bench_.addresses())
        .status();
  };
  const int32_t a = filled({7, 9}), out = bench_.tensor(GetParam(), {7, 5});
  EXPECT_EQ(refusal(a, filled({8, 5}), out).code(), "DC6130");
  EXPECT_EQ(refusal(filled({7, 0}), filled({0, 5}), out).code(), "DC6130");
  EXPECT_EQ(refusal(a, bench_.tensor(DType::F64, {9, 5}), out).code(), "DC6130");
  // Expanded dims take no memory, but a copy of them would: of as many bytes as an int64_t counts
  // from 0, or of more columns than oneDNN takes.
  for (const int64_t depth : {int64_t{1} << 62, int64_t{1} << 61, int64_t{1} << 31}) {
    const int32_t one = bench_.tensor(GetParam(), {1, 1});
    EXPECT_EQ(refusal(bench_.tensor(GetParam(), {1, depth}, {0, 0}),
                      bench_.tensor(GetParam(), {depth, 1}, {0, 0}), one)
                  .code(),
              "DC6130");
  }
  // Scratch that is in no plan, and that nothing took at the start.
  EXPECT_EQ(refusal(filled({7, 9}, {20, 2}), filled({9, 5}), out).code(), "DC6115");
}

INSTANTIATE_TEST_SUITE_P(Types, Products, testing::Values(DType::F32, DType::BF16),
                         [](const auto& info) { return std::string(base::name(info.param)); });

// Missing scratch is taken once, when a run starts.
TEST(ProductScratch, BeyondThePlanIsTakenAtTheStart) {
  KernelBench bench;
  const int32_t a = bench.filled<float>(DType::F32, {2, 2}, {1, 2, 3, 4});
  const int32_t gaps = bench.tensor(DType::F32, {2, 2}, {4, 2});
  const int32_t out = bench.tensor(DType::F32, {2, 2});
  for (const int i : {0, 2, 4, 6}) bench.data<float>(gaps)[i] = static_cast<float>(i);
  plan::Instruction step =
      instruction("aten.mm.default", {tensor_arg(a, "self"), tensor_arg(gaps, "mat2")}, {out});
  step.kind = plan::InstructionKind::Kernel;
  step.provider = plan::Provider::Native;
  bench.plan().programs.push_back({});
  bench.plan().programs[0].instructions.push_back(step);
  const auto provider = kernel::make_native_provider();
  const auto missing = provider->take_missing_scratch(bench.addresses());
  ASSERT_TRUE(missing.ok()) << missing.status().to_string();
  EXPECT_EQ(missing->op, "aten.mm.default");
  EXPECT_GE(missing->bytes, 16);
  EXPECT_EQ(missing->planned, 0);
  auto kernel = provider->prepare(step, bench.addresses());
  ASSERT_TRUE(kernel.ok()) << kernel.status().to_string();
  EXPECT_TRUE((*kernel)->launch(*device::cpu_device().make_stream()).ok());
  EXPECT_EQ(bench.values<float>(out), (std::vector<float>{8, 14, 16, 30}));
}

}  // namespace
}  // namespace dc::runtime
