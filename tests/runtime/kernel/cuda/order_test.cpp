// sort, topk, cumsum, places of extremes and counts on the double of a GPU give the CPU's bits:
// also of equal elements, whose order PyTorch's CPU kernels leave to the C++ library's steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "tests/runtime/kernel/cuda/gpu_bench.h"

namespace dc::runtime {
namespace {

using base::DType;
using Sizes = KernelBench::Sizes;

// Rows of a few different numbers, NaN among them, and with -0 next to 0.
std::vector<float> few_numbers(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    const auto drawn = random() % 9;
    value = drawn == 7   ? std::numeric_limits<float>::quiet_NaN()
            : drawn == 8 ? -0.0f
                         : static_cast<float>(drawn) - 3;
  }
  return values;
}
std::vector<int64_t> few_integers(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int64_t> values(static_cast<size_t>(count));
  for (int64_t& value : values) value = static_cast<int64_t>(random() % 5) - 2;
  return values;
}

// Numbers whose order is decided while they are compared, so that every pivot is nearly the
// smallest of its range (M. D. McIlroy, A killer adversary for quicksort, 1999): a heap takes over.
// arrange(places, before)
template <typename Arrange>
std::vector<float> against_pivots(int64_t count, Arrange arrange) {
  const auto undecided = static_cast<float>(count);
  std::vector<float> values(static_cast<size_t>(count), undecided);
  std::vector<size_t> places(values.size());
  std::iota(places.begin(), places.end(), size_t{0});
  size_t candidate = 0;
  float next = 0;
  arrange(places, [&](size_t a, size_t b) {
    if (values[a] == undecided && values[b] == undecided) values[a == candidate ? a : b] = next++;
    if (values[a] == undecided) candidate = a;
    if (values[b] == undecided) candidate = b;
    return values[a] < values[b];
  });
  return values;
}

void expect_orders_of_cpu(KernelBench& bench, int32_t self, const Sizes& sizes, DType dtype) {
  const int64_t rows = sizes[0], length = sizes[1];
  const int32_t values = bench.tensor(dtype, sizes), indices = bench.tensor(DType::I64, sizes);
  for (const char* op : {"aten.sort.default", "aten.sort.stable"})
    for (const bool descending : {false, true})
      expect_bits_of_cpu(bench,
                         instruction(op,
                                     {tensor_arg(self, "self"), int_arg("dim", 1),
                                      int_arg("descending", descending),
                                      int_arg("stable", op == std::string("aten.sort.stable"))},
                                     {values, indices}));
  for (const int64_t k : {int64_t{1}, length / 64, length / 2 + 1, length}) {
    if (k == 0) continue;
    const int32_t first = bench.tensor(dtype, {rows, k}),
                  places = bench.tensor(DType::I64, {rows, k});
    for (const bool largest : {true, false})
      for (const bool sorted : {true, false})
        expect_bits_of_cpu(
            bench, instruction("aten.topk.default",
                               {tensor_arg(self, "self"), int_arg("k", k), int_arg("dim", 1),
                                int_arg("largest", largest), int_arg("sorted", sorted)},
                               {first, places}));
  }
}

TEST(CudaOrder, OfEqualElementsIsTheCpus) {
  for (const int64_t length : {1, 2, 3, 4, 16, 17, 33, 130, 700}) {
    SCOPED_TRACE(length);
    KernelBench bench;
    const Sizes sizes = {3, length};
    expect_orders_of_cpu(bench, bench.filled(DType::F32, sizes, few_numbers(3 * length, 1)), sizes,
                         DType::F32);
    expect_orders_of_cpu(bench, bench.filled(DType::I64, sizes, few_integers(3 * length, 2)), sizes,
                         DType::I64);
  }
}

TEST(CudaOrder, OfRowsThatNoPivotPartsIsTheCpus) {
  for (const int64_t length : {200, 1000}) {
    KernelBench bench;
    const Sizes sizes = {1, length};
    const auto against_sort = against_pivots(
        length, [](auto& places, auto before) { std::sort(places.begin(), places.end(), before); });
    const auto against_selection = against_pivots(length, [](auto& places, auto before) {
      std::nth_element(places.begin(), places.begin() + std::ssize(places) / 2, places.end(),
                       before);
    });
    for (const std::vector<float>& values : {against_sort, against_selection})
      expect_orders_of_cpu(bench, bench.filled(DType::F32, sizes, values), sizes, DType::F32);
  }
}

TEST(CudaOrder, OfColumnsAndOfNarrowElementsIsTheCpus) {
  for (const DType dtype : {DType::BF16, DType::F16, DType::F64}) {
    KernelBench bench;
    const Sizes sizes = {30, 300};
    const int32_t self = noisy(bench, dtype, sizes, 3), values = bench.tensor(dtype, sizes),
                  indices = bench.tensor(DType::I64, sizes);
    expect_bits_of_cpu(
        bench, instruction("aten.sort.default", {tensor_arg(self, "self"), int_arg("dim", 0)},
                           {values, indices}));
    expect_bits_of_cpu(bench, instruction("aten.sort.stable",
                                          {tensor_arg(self, "self"), int_arg("dim", 0),
                                           int_arg("stable", 1), int_arg("descending", 1)},
                                          {values, indices}));
  }
}

TEST(CudaScans, CountsAndSumsAreTheCpus) {
  for (const int64_t length : {1, 7, 255, 256, 257, 1000}) {
    SCOPED_TRACE(length);
    KernelBench bench;
    const Sizes sizes = {length, 3};
    const int32_t integers = bench.filled(DType::I64, sizes, few_integers(3 * length, 4)),
                  sums = bench.tensor(DType::I64, sizes),
                  numbers = bench.filled(DType::F32, sizes, noise(3 * length, 5)),
                  to = bench.tensor(DType::F32, sizes);
    expect_bits_of_cpu(
        bench, instruction("aten.cumsum.default", {tensor_arg(integers, "self"), int_arg("dim", 0)},
                           {sums}));
    expect_near_cpu(
        bench,
        instruction("aten.cumsum.default", {tensor_arg(numbers, "self"), int_arg("dim", 0)}, {to}),
        {to}, 2e-7);
  }
}

TEST(CudaScans, ExtremesAreTheFirstOfEqualsOrTheFirstNan) {
  const Sizes sizes = {5, 300, 4};
  for (const bool is_floating : {true, false}) {
    KernelBench bench;
    const DType dtype = is_floating ? DType::F32 : DType::I64;
    const int32_t self = is_floating ? bench.filled(dtype, sizes, few_numbers(6000, 6))
                                     : bench.filled(dtype, sizes, few_integers(6000, 7)),
                  plain = is_floating ? bench.filled(dtype, sizes, noise(6000, 8)) : self;
    const int32_t one = bench.tensor(DType::I64, {}), kept = bench.tensor(DType::I64, {5, 1, 4}),
                  values = bench.tensor(dtype, {5, 4}), indices = bench.tensor(DType::I64, {5, 4});
    for (const int32_t from : {self, plain}) {
      for (const std::string which : {"max", "min"}) {
        expect_bits_of_cpu(
            bench, instruction("aten.arg" + which + ".default", {tensor_arg(from, "self")}, {one}));
        expect_bits_of_cpu(
            bench, instruction("aten.arg" + which + ".default",
                               {tensor_arg(from, "self"), int_arg("dim", 1), int_arg("keepdim", 1)},
                               {kept}));
        expect_bits_of_cpu(
            bench, instruction("aten." + which + ".dim",
                               {tensor_arg(from, "self"), int_arg("dim", 1)}, {values, indices}));
      }
    }
  }
}

TEST(CudaHistograms, CountAsTheCpu) {
  KernelBench bench;
  const int32_t self = bench.filled(DType::F32, {700}, noise(700, 9)),
                to = bench.tensor(DType::F32, {13});
  for (const double high : {2.0, -1.0})  // -1: from the smallest to the largest element
    expect_bits_of_cpu(bench, instruction("aten.histc.default",
                                          {tensor_arg(self, "self"), int_arg("bins", 13),
                                           float_arg("min", -1), float_arg("max", high)},
                                          {to}));
}

}  // namespace
}  // namespace dc::runtime
