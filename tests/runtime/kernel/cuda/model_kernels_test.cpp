// Kernels of the model's operators on the doubles of a GPU and of cuBLASLt (tests/double), next to
// those of the CPU, or to the definition.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/base/units.h"
#include "tests/runtime/kernel/cuda/gpu_bench.h"
#include "tests/src/archive/temporary_folder.h"

namespace dc::runtime {
namespace {

using base::DType;
using Sizes = KernelBench::Sizes;

std::vector<float> floats_of(KernelBench& bench, const std::vector<std::byte>& memory, int32_t id) {
  const std::vector<double> all = elements_of(bench, memory, id);
  return {all.begin(), all.end()};
}
// Those f32 results of an instruction that the CPU gives, nearly.
void expect_values_of_cpu(KernelBench& bench, const plan::Instruction& instruction,
                          const std::vector<int32_t>& results) {
  expect_near_cpu(bench, instruction, results, 2e-6);
}

// Of both: rows that packs do not fill, or begin or end in; columns in one part and in several.
TEST(CudaReductions, FoldAnyDims) {
  for (const Sizes& sizes : {Sizes{5, 40, 33}, Sizes{130, 3, 72}}) {
    const std::vector<float> values = noise(sizes[0] * sizes[1] * sizes[2], 3);
    for (const std::vector<int64_t>& dims : std::vector<std::vector<int64_t>>{
             {0}, {1}, {2}, {-1}, {0, 1}, {1, 2}, {0, 2}, {0, 1, 2}}) {
      for (const char* op : {"aten.sum.dim_IntList", "aten.mean.dim", "aten.amax.default"}) {
        for (const bool keeps : {false, true}) {
          for (const DType dtype : {DType::F32, DType::BF16}) {
            SCOPED_TRACE(std::string(op) + " " + std::string(base::name(dtype)));
            KernelBench bench;
            const int32_t wide = bench.filled(DType::F32, sizes, values);
            const int32_t self = dtype == DType::F32 ? wide : bench.tensor(dtype, sizes);
            if (dtype != DType::F32) {
              ASSERT_TRUE(
                  run_native(bench, instruction("dc.cast", {tensor_arg(wide)}, {self})).ok());
            }
            Sizes kept;
            for (int64_t d = 0; d < 3; ++d) {
              const bool folded = std::ranges::count(dims, d) + std::ranges::count(dims, d - 3) > 0;
              if (!folded) kept.push_back(sizes[static_cast<size_t>(d)]);
              if (folded && keeps) kept.push_back(1);
            }
            const int32_t to = bench.tensor(dtype, kept);
            expect_near_cpu(
                bench, instruction(op, {tensor_arg(self, "self"), list_arg("dim", dims)}, {to}),
                {to}, tolerance_of(dtype));
          }
        }
      }
    }
  }
}

TEST(CudaReductions, OfAllElementsAndOfNarrowOnes) {
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    KernelBench bench;
    const int32_t wide = bench.filled(DType::F32, {300, 7}, noise(2100, 4));
    const int32_t self = dtype == DType::F32 ? wide : bench.tensor(dtype, {300, 7});
    if (dtype != DType::F32) {
      ASSERT_TRUE(run_native(bench, instruction("dc.cast", {tensor_arg(wide)}, {self})).ok());
    }
    const int32_t to = bench.tensor(DType::F32, {});
    for (const char* op : {"aten.sum.default", "aten.mean.default"})
      expect_values_of_cpu(bench, instruction(op, {tensor_arg(self, "self")}, {to}), {to});
  }
}

// Layer norm and RMS norm, and their gradients, over more rows than one part of columns has.
TEST(CudaNorms, GiveTheNumbersOfTheCpu) {
  for (const DType dtype : {DType::F32, DType::BF16, DType::F64}) {
    for (const bool is_centered : {true, false}) {
      SCOPED_TRACE(std::string(base::name(dtype)) + (is_centered ? " layer" : " rms"));
      constexpr int64_t kRows = 70, kColumns = 33;
      const DType of_rows = dtype == DType::F64 ? DType::F64 : DType::F32;
      const double tolerance = dtype == DType::F64 ? 1e-11 : 8 * tolerance_of(dtype);
      KernelBench bench;
      const int32_t x = noisy(bench, dtype, {kRows, kColumns}, 1),
                    weight = noisy(bench, dtype, {kColumns}, 2),
                    bias = noisy(bench, dtype, {kColumns}, 3),
                    g = noisy(bench, dtype, {kRows, kColumns}, 4),
                    y = bench.tensor(dtype, {kRows, kColumns}),
                    mean = bench.tensor(of_rows, {kRows, 1}),
                    rstd = bench.tensor(of_rows, {kRows, 1}),
                    of_x = bench.tensor(dtype, {kRows, kColumns}),
                    of_weight = bench.tensor(dtype, {kColumns}),
                    of_bias = bench.tensor(dtype, {kColumns});
      std::vector<plan::Arg> arguments = {tensor_arg(x, "input"),
                                          list_arg("normalized_shape", {kColumns}),
                                          tensor_arg(weight, "weight"), float_arg("eps", 1e-5)};
      if (is_centered) arguments.push_back(tensor_arg(bias, "bias"));
      std::vector<int32_t> results = {y, rstd};
      if (is_centered) results = {y, mean, rstd};
      expect_near_cpu(bench,
                      instruction(is_centered ? "aten.native_layer_norm.default"
                                              : "aten._fused_rms_norm.default",
                                  arguments, results),
                      results, tolerance);
      arguments = {tensor_arg(g, "grad_out"), tensor_arg(x, "input"),
                   list_arg("normalized_shape", {kColumns}), tensor_arg(rstd, "rstd"),
                   tensor_arg(weight, "weight")};
      if (is_centered) arguments.push_back(tensor_arg(mean, "mean"));
      results = {of_x, of_weight};
      if (is_centered) results.push_back(of_bias);
      expect_near_cpu(bench,
                      instruction(is_centered ? "aten.native_layer_norm_backward.default"
                                              : "aten._fused_rms_norm_backward.default",
                                  arguments, results),
                      results, tolerance);
    }
  }
}

// Where half precision became f32 on the way forward, its gradient is of half precision again.
TEST(CudaNorms, SoftmaxGivesGradientsOfAnotherType) {
  for (const char* op :
       {"aten._softmax_backward_data.default", "aten._log_softmax_backward_data.default"}) {
    KernelBench bench;
    const int32_t g = noisy(bench, DType::F32, {5, 9}, 1), y = noisy(bench, DType::F32, {5, 9}, 2),
                  to = bench.tensor(DType::F16, {5, 9});
    expect_near_cpu(
        bench,
        instruction(op, {tensor_arg(g, "grad_output"), tensor_arg(y, "output"), int_arg("dim", 1)},
                    {to}),
        {to}, tolerance_of(DType::F16));
  }
}

// As exports for CPUs and for GPUs have it: what is kept for the gradient, or nothing.
TEST(CudaLogSigmoid, GivesTheBitsOfTheCpu) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    KernelBench bench;
    const int32_t x = noisy(bench, dtype, {6, 7}, 1), g = noisy(bench, dtype, {6, 7}, 2),
                  y = bench.tensor(dtype, {6, 7}), kept = bench.tensor(dtype, {6, 7}),
                  nothing = bench.tensor(dtype, {0}), of_kept = bench.tensor(dtype, {6, 7}),
                  of_x = bench.tensor(dtype, {6, 7});
    const auto run = [&](const char* op, std::vector<plan::Arg> arguments,
                         const std::vector<int32_t>& results) {
      arguments.push_back(tensor_arg(x, "self"));
      const plan::Instruction step = instruction(op, std::move(arguments), results);
      expect_bits_of_cpu(bench, step);
      ASSERT_TRUE(run_native(bench, step).ok());
    };
    run("aten.log_sigmoid_forward.default", {}, {kept, nothing});
    run("aten.log_sigmoid_forward.default", {}, {of_kept, -1});
    run("aten.log_sigmoid_forward.default", {}, {y, kept});
    for (const auto& [buffer, to] : {std::pair{kept, of_kept}, std::pair{nothing, of_x}})
      run("aten.log_sigmoid_backward.default",
          {tensor_arg(g, "grad_output"), tensor_arg(buffer, "buffer")}, {to});
    expect_near(elements_of(bench, bench.used(), of_x), elements_of(bench, bench.used(), of_kept),
                dtype == DType::F32 ? 0 : tolerance_of(dtype));
  }
}

TEST(CudaCrossEntropy, GivesLossAndGradientsOfTheCpu) {
  for (const int64_t classes : {int64_t{3}, int64_t{700}}) {
    for (const int64_t reduction : {1, 2}) {
      constexpr int64_t kRows = 20;
      KernelBench bench;
      const int32_t logits = bench.filled(DType::F32, {kRows, classes}, noise(kRows * classes, 9));
      std::vector<int64_t> classes_of_rows(kRows);
      for (int64_t r = 0; r < kRows; ++r)
        classes_of_rows[static_cast<size_t>(r)] = r % 6 == 5 ? -100 : r * 7 % classes;
      const int32_t target = bench.filled(DType::I64, {kRows}, classes_of_rows);
      const int32_t loss = bench.tensor(DType::F32, {}), total = bench.tensor(DType::F32, {}),
                    largest = bench.tensor(DType::F32, {kRows}),
                    log_of_sum = bench.tensor(DType::F32, {kRows});
      const std::vector<plan::Arg> numbers = {int_arg("ignored", -100),
                                              int_arg("reduction", reduction)};
      std::vector<plan::Arg> arguments = {tensor_arg(logits), tensor_arg(target)};
      arguments.insert(arguments.end(), numbers.begin(), numbers.end());
      expect_values_of_cpu(
          bench, instruction("dc.cross_entropy", arguments, {loss, total, largest, log_of_sum}),
          {loss, total, largest, log_of_sum});
      const int32_t g = bench.filled<float>(DType::F32, {}, {0.75f});
      arguments = {tensor_arg(logits), tensor_arg(target),  tensor_arg(g),
                   tensor_arg(total),  tensor_arg(largest), tensor_arg(log_of_sum)};
      arguments.insert(arguments.end(), numbers.begin(), numbers.end());
      expect_values_of_cpu(bench, instruction("dc.cross_entropy_backward", arguments, {logits}),
                           {logits});
    }
  }
}

// A class that there is not ends the run as a loss that is no number.
TEST(CudaCrossEntropy, OfAClassThatThereIsNotIsNaN) {
  KernelBench bench;
  const int32_t logits = bench.filled(DType::F32, {2, 4}, noise(8, 9)),
                target = bench.filled<int64_t>(DType::I64, {2}, {1, 4});
  const int32_t loss = bench.tensor(DType::F32, {}), total = bench.tensor(DType::F32, {}),
                largest = bench.tensor(DType::F32, {2}), log_of_sum = bench.tensor(DType::F32, {2});
  const auto memory =
      after_on_gpu(bench, instruction("dc.cross_entropy",
                                      {tensor_arg(logits), tensor_arg(target),
                                       int_arg("ignored", -100), int_arg("reduction", 1)},
                                      {loss, total, largest, log_of_sum}));
  EXPECT_TRUE(std::isnan(floats_of(bench, memory, loss)[0]));
}

// A matrix of one of the ways to lie that products take.
struct Layout {
  const char* name;
  Sizes (*strides)(const Sizes& sizes);
};
Sizes in_rows(const Sizes& sizes) { return KernelBench::contiguous(sizes); }
Sizes in_columns(const Sizes& sizes) {
  Sizes strides = {1, sizes[sizes.size() - 2]};
  if (sizes.size() == 3) strides.insert(strides.begin(), sizes[1] * sizes[2]);
  return strides;
}
Sizes in_long_rows(const Sizes& sizes) {
  Sizes strides = {sizes.back() + 5, 1};
  if (sizes.size() == 3) strides.insert(strides.begin(), sizes[1] * strides[0] + 3);
  return strides;
}
constexpr Layout kLayouts[] = {
    {"rows", in_rows}, {"columns", in_columns}, {"long rows", in_long_rows}};

class Product {
 public:
  Product(const Sizes& left_sizes, const Sizes& right_sizes, const Layout& left_lies,
          const Layout& right_lies) {
    left = bench.tensor(DType::F32, left_sizes, left_lies.strides(left_sizes));
    right = bench.tensor(DType::F32, right_sizes, right_lies.strides(right_sizes));
    Sizes sizes = left_sizes;
    sizes.back() = right_sizes.back();
    result = bench.tensor(DType::F32, sizes);
    fill(left, 1);
    fill(right, 2);
  }
  void fill(int32_t id, unsigned seed) {
    const int64_t count = KernelBench::bytes(bench.plan().tensors[static_cast<size_t>(id)]) / 4;
    std::ranges::copy(noise(count, seed), bench.data<float>(id));
  }
  // What it must be, with what is added read at [n, i, j].
  template <typename Added>
  std::vector<float> expected(double alpha, Added added) {
    const auto a = bench.addresses().bind(left), b = bench.addresses().bind(right);
    const auto at = [](const kernel::BoundTensor& m, int64_t n, int64_t i, int64_t j) {
      const size_t r = m.sizes.size() - 2;
      const int64_t batch = r == 1 ? n * m.strides[0] : 0;
      return static_cast<const float*>(m.data)[batch + i * m.strides[r] + j * m.strides[r + 1]];
    };
    const size_t r = a.sizes.size() - 2;
    std::vector<float> all;
    for (int64_t n = 0; n < (r == 1 ? a.sizes[0] : 1); ++n)
      for (int64_t i = 0; i < a.sizes[r]; ++i)
        for (int64_t j = 0; j < b.sizes[r + 1]; ++j) {
          double sum = 0;
          for (int64_t k = 0; k < a.sizes[r + 1]; ++k)
            sum += static_cast<double>(at(a, n, i, k)) * static_cast<double>(at(b, n, k, j));
          all.push_back(static_cast<float>(alpha * sum + added(n, i, j)));
        }
    return all;
  }
  void expect(const plan::Instruction& instruction, const std::vector<float>& expected) {
    const auto memory = after_on_gpu(bench, instruction);
    ASSERT_FALSE(memory.empty());
    expect_near(elements_of(bench, memory, result), {expected.begin(), expected.end()}, 1e-5);
  }

  KernelBench bench;
  int32_t left, right, result;
};

double nothing(int64_t, int64_t, int64_t) { return 0; }

TEST(CudaProducts, OfMatricesInRowsAndColumns) {
  for (const Layout& a : kLayouts) {
    for (const Layout& b : kLayouts) {
      SCOPED_TRACE(std::string(a.name) + " x " + b.name);
      for (const Sizes& mkn : {Sizes{7, 5, 9}, Sizes{1, 5, 9}, Sizes{7, 1, 9}, Sizes{7, 5, 1}}) {
        Product one({mkn[0], mkn[1]}, {mkn[1], mkn[2]}, a, b);
        one.expect(instruction("aten.mm.default",
                               {tensor_arg(one.left, "self"), tensor_arg(one.right, "mat2")},
                               {one.result}),
                   one.expected(1, nothing));
      }
      Product many({3, 7, 5}, {3, 5, 9}, a, b);
      many.expect(instruction("aten.bmm.default",
                              {tensor_arg(many.left, "self"), tensor_arg(many.right, "mat2")},
                              {many.result}),
                  many.expected(1, nothing));
    }
  }
}

TEST(CudaProducts, AddWhatIsToBeAdded) {
  struct Case {
    Sizes sizes, strides;  // of what is added
    double alpha, beta;
  };
  const Case cases[] = {{{9}, {1}, 1, 1},        {{9}, {1}, 0.5, 2},     {{7, 9}, {9, 1}, 2, -1},
                        {{7, 9}, {12, 1}, 1, 1}, {{7, 9}, {1, 7}, 1, 1}, {{7, 1}, {1, 1}, 1, 1},
                        {{}, {}, 1, 3},          {{7, 9}, {9, 1}, 3, 0}};
  for (const Case& each : cases) {
    Product one({7, 5}, {5, 9}, kLayouts[0], kLayouts[1]);
    const int32_t self = one.bench.tensor(DType::F32, each.sizes, each.strides);
    one.fill(self, 5);
    const auto added = [&](int64_t, int64_t i, int64_t j) {
      const auto bound = one.bench.addresses().bind(self);
      int64_t place = 0;
      const size_t dims = each.sizes.size();
      if (dims > 0 && each.sizes[dims - 1] > 1) place += j * each.strides[dims - 1];
      if (dims == 2 && each.sizes[0] > 1) place += i * each.strides[0];
      return each.beta * static_cast<double>(static_cast<const float*>(bound.data)[place]);
    };
    one.expect(instruction("aten.addmm.default",
                           {tensor_arg(self, "self"), tensor_arg(one.left, "mat1"),
                            tensor_arg(one.right, "mat2"), float_arg("alpha", each.alpha),
                            float_arg("beta", each.beta)},
                           {one.result}),
               one.expected(each.alpha, added));
  }
}

TEST(CudaProducts, AddInTheBytesOfTheSum) {
  for (const Layout& b : kLayouts) {
    Product one({7, 5}, {5, 9}, kLayouts[1], b);
    one.fill(one.result, 7);
    const auto* sums = one.bench.data<float>(one.result);
    const auto sum = [&](int64_t, int64_t i, int64_t j) {
      return static_cast<double>(sums[i * 9 + j]);
    };
    const std::vector<float> expected = one.expected(1, sum);
    one.expect(instruction("dc.add_product",
                           {tensor_arg(one.result, "sum"), tensor_arg(one.left, "left"),
                            tensor_arg(one.right, "right")},
                           {one.result}),
               expected);
  }
}

// Wherever the second product's matrices lie: behind those of the first or before them. A library
// of CUDA 12 has no such batches and gives the same numbers.
TEST(CudaProducts, TwoInOneKernel) {
  for (const bool is_old : {false, true}) {
    for (const bool is_swapped : {false, true}) {
      for (const Layout& a : kLayouts) {
        if (is_old) setenv("DOUBLE_CUBLAS_12", "1", 1);
        Product one({7, 5}, {5, 9}, a, kLayouts[0]);
        int32_t right = one.bench.filled(DType::F32, {5, 9}, noise(45, 9)),
                result = one.bench.tensor(DType::F32, {7, 9});
        if (is_swapped) {
          std::swap(right, one.right);
          std::swap(result, one.result);
        }
        const plan::Instruction step =
            instruction("dc.two_products",
                        {tensor_arg(one.left, "left"), tensor_arg(one.right, "right"),
                         tensor_arg(one.left, "left2"), tensor_arg(right, "right2")},
                        {one.result, result});
        one.expect(step, one.expected(1, nothing));
        std::swap(one.right, right);
        std::swap(one.result, result);
        one.expect(step, one.expected(1, nothing));
        unsetenv("DOUBLE_CUBLAS_12");
      }
    }
  }
}

// In the plan's memory if that has room, wherever it begins; else beyond it, where the instruction
// leaves what lies in the plan as it was. A GPU has its own workspace sizes.
TEST(CudaProductsOfTheDouble, TakeTheWorkspaceThatThePlanHas) {
  constexpr int64_t kMostSkipped = 192,
                    kWorkspace =
                        int64_t{24} * 24 * 4;  // of a slice that begins 64 bytes behind 256
  for (const int64_t missing : {0, 64, 128, 192, 256}) {
    Product one({24, 16}, {16, 24}, kLayouts[0], kLayouts[0]);
    plan::Instruction step =
        instruction("aten.mm.default",
                    {tensor_arg(one.left, "self"), tensor_arg(one.right, "mat2")}, {one.result});
    const auto needed = gpu_provider().measure_scratch(step, one.bench.addresses());
    ASSERT_TRUE(needed.ok()) << needed.status().to_string();
    EXPECT_EQ(*needed, kMostSkipped + kWorkspace);  // of the double: the result, once more
    step.scratch = one.bench.slice(*needed - missing);
    const int64_t first = one.bench.addresses().slice(step.scratch) - one.bench.used().data();
    const int64_t begin = base::round_up(first, 256);
    const bool has_room = first + *needed - missing - begin >= kWorkspace;
    const std::vector<std::byte> memory = after_on_gpu(one.bench, step);
    ASSERT_GT(memory.size(), static_cast<size_t>(begin));
    // What the double's workspace holds in the end.
    const std::byte left{static_cast<unsigned char>(has_room ? 0xA5 : 0xFF)};
    EXPECT_EQ(memory[static_cast<size_t>(begin)], left) << missing;
    one.expect(step, one.expected(1, nothing));
  }
}

// Of kernels that are not products, and none of those that need none.
TEST(CudaProducts, ScratchIsMeasuredWithoutRunning) {
  KernelBench bench;
  const int32_t x = bench.tensor(DType::F32, {64}), y = bench.tensor(DType::F32, {64}),
                indices = bench.tensor(DType::I64, {7}), g = bench.tensor(DType::F32, {7, 8}),
                rows = bench.tensor(DType::F32, {20, 8});
  const auto scratch = [&](const plan::Instruction& step) {
    return gpu_provider().measure_scratch(step, bench.addresses()).value();
  };
  EXPECT_EQ(scratch(instruction("aten.neg.default", {tensor_arg(x, "self")}, {y})), 0);
  EXPECT_EQ(scratch(instruction("aten.embedding_dense_backward.default",
                                {tensor_arg(g, "grad_output"), tensor_arg(indices, "indices"),
                                 int_arg("num_weights", 20), int_arg("padding_idx", -1)},
                                {rows})),
            192 + 256);  // a link for each of 7 places, on 256 bytes
}

// One number for all, one for each row or column, and elements apart, as either operand or both;
// with the plan's scratch and without.
Sizes apart(const Sizes& sizes, int64_t row, int64_t column) {
  Sizes strides = {row, column};
  if (sizes.size() == 3) strides.insert(strides.begin(), 40);
  return strides;
}
constexpr Layout kApart[] = {
    {"one number", [](const Sizes& sizes) { return apart(sizes, 0, 0); }},
    {"a row for all", [](const Sizes& sizes) { return apart(sizes, 0, 1); }},
    {"a column for all", [](const Sizes& sizes) { return apart(sizes, 1, 0); }},
    {"elements apart", [](const Sizes& sizes) { return apart(sizes, 2 * sizes.back() + 1, 2); }}};
TEST(CudaProducts, OfOperandsThatLieOtherwise) {
  const auto arguments = [](const Product& of, const char* left, const char* right) {
    return std::vector{tensor_arg(of.left, left), tensor_arg(of.right, right)};
  };
  for (const Layout& odd : kApart) {
    for (const auto& [a, b] :
         {std::pair{&odd, &kLayouts[1]}, std::pair{&kLayouts[0], &odd}, std::pair{&odd, &odd}}) {
      SCOPED_TRACE(std::string(a->name) + " x " + b->name);
      Product one({7, 5}, {5, 9}, *a, *b);
      plan::Instruction step =
          instruction("aten.mm.default", arguments(one, "self", "mat2"), {one.result});
      one.expect(step, one.expected(1, nothing));
      const auto bytes = gpu_provider().measure_scratch(step, one.bench.addresses());
      ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
      EXPECT_GE(*bytes, (a == &odd ? 7 * 5 * 4 : 0) + (b == &odd ? 5 * 9 * 4 : 0));
      step.scratch = one.bench.slice(*bytes);
      one.expect(step, one.expected(1, nothing));
      const int32_t self = one.bench.filled(DType::F32, {7, 1}, noise(7, 3));
      auto added = arguments(one, "mat1", "mat2");
      added.push_back(tensor_arg(self, "self"));
      one.expect(instruction("aten.addmm.default", added, {one.result}),
                 one.expected(1, [&](int64_t, int64_t row, int64_t) {
                   return static_cast<double>(one.bench.data<float>(self)[row]);
                 }));
      one.fill(one.result, 7);
      const std::vector<float> sums = one.bench.values<float>(one.result);
      auto in_place = arguments(one, "left", "right");
      in_place.push_back(tensor_arg(one.result, "sum"));
      one.expect(instruction("dc.add_product", in_place, {one.result}),
                 one.expected(1, [&](int64_t, int64_t row, int64_t column) {
                   return static_cast<double>(sums[static_cast<size_t>(row * 9 + column)]);
                 }));
      auto two = arguments(one, "left", "right");
      two.push_back(tensor_arg(one.left, "left2"));
      two.push_back(tensor_arg(one.right, "right2"));
      const int32_t other = one.bench.tensor(DType::F32, {7, 9});
      one.expect(instruction("dc.two_products", two, {other, one.result}),
                 one.expected(1, nothing));
      one.expect(instruction("dc.two_products", two, {one.result, other}),
                 one.expected(1, nothing));
      Product many({3, 7, 5}, {3, 5, 9}, *a, *b);
      many.expect(instruction("aten.bmm.default", arguments(many, "self", "mat2"), {many.result}),
                  many.expected(1, nothing));
    }
  }
}

// The second one would be read as the first one lies.
TEST(CudaProducts, RefuseTwoThatLieDifferently) {
  Product one({7, 5}, {5, 9}, kLayouts[0], kLayouts[0]);
  const int32_t right = one.bench.tensor(DType::F32, {5, 9}, {1, 5}),
                result = one.bench.tensor(DType::F32, {7, 9});
  const auto memory = try_on_gpu(
      one.bench, instruction("dc.two_products",
                             {tensor_arg(one.left, "left"), tensor_arg(one.right, "right"),
                              tensor_arg(one.left, "left2"), tensor_arg(right, "right2")},
                             {one.result, result}));
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(base::exit_code(memory.status().kind()), 81);
}

TEST(CudaProducts, RefuseResultsWithGaps) {
  KernelBench bench;
  const int32_t left = bench.tensor(DType::F32, {4, 4}), right = bench.tensor(DType::F32, {4, 4}),
                result = bench.tensor(DType::F32, {4, 4}, {12, 3});
  device::Device& gpu = *device::open_device(base::DeviceKind::Cuda).value();
  const auto kernel = kernel::make_cuda_provider(gpu)->prepare(
      instruction("aten.mm.default", {tensor_arg(left, "self"), tensor_arg(right, "mat2")},
                  {result}),
      bench.addresses());
  ASSERT_FALSE(kernel.ok());
  EXPECT_EQ(kernel.status().code(), "DC6159");
  EXPECT_EQ(base::exit_code(kernel.status().kind()), 81);
}

// In other processes.
struct Failure {
  const char *value, *code;
};
class CudaProductsDeathTest : public ::testing::TestWithParam<Failure> {};
TEST_P(CudaProductsDeathTest, SayThatCublasFails) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("DOUBLE_FAIL", GetParam().value, 1);
        Product one({4, 4}, {4, 4}, kLayouts[0], kLayouts[0]);
        device::Device& gpu = *device::open_device(base::DeviceKind::Cuda).value();
        const auto provider = kernel::make_cuda_provider(gpu);
        auto kernel = provider->prepare(
            instruction("aten.mm.default",
                        {tensor_arg(one.left, "self"), tensor_arg(one.right, "mat2")},
                        {one.result}),
            one.bench.addresses());
        base::Status status = kernel.status();
        if (status.ok()) status = (*kernel)->launch(*gpu.make_stream());
        std::fputs(status.to_string().c_str(), stderr);
        std::_Exit(base::exit_code(status.kind()));
      },
      ::testing::ExitedWithCode(69), GetParam().code);
}
INSTANTIATE_TEST_SUITE_P(Cases, CudaProductsDeathTest,
                         ::testing::Values(Failure{"cublasLtCreate:1:1", "DC6158.*cannot begin"},
                                           Failure{"cublasLtMatmul:1:13", "DC6158.*status 13"}));

}  // namespace
}  // namespace dc::runtime
