// A kernel gives for elements of bf16 what it gives for the same numbers in f32, rounded once: also
// where it has loops of its own for bf16 that lies next to each other.
#include <ostream>
#include <random>

#include "runtime/kernel/scalar/elements.h"
#include "tests/runtime/kernel/kernel_bench.h"

namespace dc::runtime {
namespace {

using base::DType;
using kernel::scalar::BF16;
using Sizes = KernelBench::Sizes;

struct Shape {
  Sizes sizes;
  Sizes strides = {};  // none: contiguous
};
struct Operand {
  std::string name;
  Shape shape;
};
struct Step {
  std::string op;
  std::vector<Operand> operands;
  std::vector<Shape> results;
  std::vector<plan::Arg> attributes = {};
};
void PrintTo(const Step& step, std::ostream* out) {
  *out << step.op;
  for (const Operand& operand : step.operands)
    *out << " " << testing::PrintToString(operand.shape.sizes);
}

plan::Arg ints_arg(std::string name, std::vector<int64_t> values) {
  plan::Arg arg;
  arg.name = std::move(name);
  arg.kind = plan::ArgKind::Ints;
  arg.ints = std::move(values);
  return arg;
}

// The elements of a tensor with gaps and all, as they lie.
template <typename E>
std::vector<E> memory_of(KernelBench& bench, int32_t id) {
  const int64_t bytes = KernelBench::bytes(bench.plan().tensors[static_cast<size_t>(id)]);
  const E* first = bench.data<E>(id);
  return {first, first + bytes / static_cast<int64_t>(sizeof(E))};
}

// The results' memory, each element as bf16; gaps are as they were.
template <typename E>
std::vector<std::vector<uint16_t>> run(const Step& step, DType dtype) {
  KernelBench bench;
  std::mt19937 random(7);
  std::uniform_real_distribution<float> number(-2, 2);
  std::vector<plan::Arg> args = step.attributes;
  for (const Operand& operand : step.operands) {
    const int32_t id = bench.tensor(dtype, operand.shape.sizes, operand.shape.strides);
    const int64_t bytes = KernelBench::bytes(bench.plan().tensors[static_cast<size_t>(id)]);
    E* elements = bench.data<E>(id);
    for (size_t i = 0; i < static_cast<size_t>(bytes) / sizeof(E); ++i) {
      const BF16 element = kernel::scalar::narrow_bf16(number(random));
      elements[i] = kernel::scalar::store<E>(kernel::scalar::widen(element));
    }
    args.push_back(tensor_arg(id, operand.name));
  }
  std::vector<int32_t> results;
  for (const Shape& shape : step.results)
    results.push_back(bench.tensor(dtype, shape.sizes, shape.strides));
  const base::Status status = run_native(bench, instruction(step.op, args, results));
  EXPECT_TRUE(status.ok()) << status.to_string();
  std::vector<std::vector<uint16_t>> all;
  for (const int32_t id : results) {
    std::vector<uint16_t>& bits = all.emplace_back();
    for (const E element : memory_of<E>(bench, id))
      bits.push_back(kernel::scalar::narrow_bf16(kernel::scalar::load(element)).bits);
  }
  return all;
}

class NativeBf16 : public testing::TestWithParam<Step> {};

TEST_P(NativeBf16, IsF32RoundedOnce) {
  const auto narrow = run<BF16>(GetParam(), DType::BF16), wide = run<float>(GetParam(), DType::F32);
  for (size_t i = 0; i < wide.size(); ++i) EXPECT_EQ(narrow[i], wide[i]) << "result " << i;
}

// Where it has loops of its own, without f32: numbers, infinities, every NaN.
TEST(NativeBf16Neg, IsF32RoundedOnceForEveryBitPattern) {
  constexpr int64_t kRows = 2048, kLength = 32;
  for (const int64_t step : {kLength, 2 * kLength}) {
    KernelBench bench;
    const int32_t self = bench.tensor(DType::BF16, {kRows, kLength}, {step, 1});
    const int32_t result = bench.tensor(DType::BF16, {kRows, kLength});
    const auto pattern = [](int64_t i) { return BF16{static_cast<uint16_t>(i)}; };
    for (int64_t i = 0; i < kRows * kLength; ++i)
      bench.data<BF16>(self)[i / kLength * step + i % kLength] = pattern(i);
    const base::Status status =
        run_native(bench, instruction("aten.neg.default", {tensor_arg(self, "self")}, {result}));
    ASSERT_TRUE(status.ok()) << status.to_string();
    for (int64_t i = 0; i < kRows * kLength; ++i) {
      const BF16 wanted = kernel::scalar::narrow_bf16(-kernel::scalar::widen(pattern(i)));
      ASSERT_EQ(bench.data<BF16>(result)[i].bits, wanted.bits) << i;
    }
  }
}

std::vector<Step> pointwise() {
  std::vector<Step> steps;
  for (const int64_t length : {1, 15, 16, 17, 32, 100, 513}) {
    const Shape dense{{3, length}}, gaps{{3, length}, {length + 5, 1}},
        apart{{3, length}, {2 * length, 2}};
    const Operand row{"other", {{length}}};
    for (const Shape& shape : {dense, gaps, apart}) {
      steps.push_back({"aten.neg.default", {{"self", shape}}, {dense}});
      steps.push_back({"aten.relu.default", {{"self", dense}}, {shape}});
      steps.push_back({"aten.sin.default", {{"self", shape}}, {shape}});
      steps.push_back({"aten.exp.default", {{"self", shape}}, {shape}});
      steps.push_back({"aten.mul.Tensor", {{"self", shape}, row}, {dense}});
      steps.push_back({"aten.add.Tensor",
                       {{"self", shape}, {"other", gaps}},
                       {shape},
                       {float_arg("alpha", 0.75)}});
      steps.push_back({"aten.threshold_backward.default",
                       {{"grad_output", shape}, {"self", dense}},
                       {gaps},
                       {float_arg("threshold", 0.5)}});
      steps.push_back({"aten.addcmul.default",
                       {{"self", shape}, {"tensor1", gaps}, {"tensor2", dense}},
                       {dense}});
    }
  }
  return steps;
}

std::vector<Step> reductions() {
  std::vector<Step> steps;
  for (const std::string op : {"aten.sum.dim_IntList", "aten.mean.dim", "aten.amax.default"}) {
    for (const int64_t rows : {1, 3, 64, 65, 200}) {
      for (const int64_t columns : {1, 2, 5, 16, 37, 192, 600}) {
        steps.push_back({op, {{"self", {{rows, columns}}}}, {{{columns}}}, {ints_arg("dim", {0})}});
        steps.push_back({op, {{"self", {{rows, columns}}}}, {{{rows}}}, {ints_arg("dim", {1})}});
      }
    }
  }
  return steps;
}

std::vector<Step> row_norms() {
  std::vector<Step> steps;
  for (const int64_t length : {8, 64, 300, 512, 700}) {
    for (const int64_t rows : {1, 4, 7, 130}) {
      const Shape all{{rows, length}}, one{{rows, 1}}, row{{length}};
      const plan::Arg shape = ints_arg("normalized_shape", {length});
      steps.push_back({"aten.native_layer_norm.default",
                       {{"input", all}, {"weight", row}, {"bias", row}},
                       {all, one, one},
                       {shape, float_arg("eps", 1e-5)}});
      steps.push_back({"aten.native_layer_norm_backward.default",
                       {{"grad_out", all},
                        {"input", all},
                        {"mean", one},
                        {"rstd", one},
                        {"weight", row},
                        {"bias", row}},
                       {all, row, row},
                       {shape}});
      for (const std::string op : {"aten._softmax", "aten._log_softmax"}) {
        steps.push_back({op + ".default", {{"self", all}}, {all}, {int_arg("dim", 1)}});
        steps.push_back({op + "_backward_data.default",
                         {{"grad_output", all}, {"output", all}},
                         {all},
                         {int_arg("dim", 1)}});
      }
    }
  }
  return steps;
}

std::vector<Step> batch_norms() {
  std::vector<Step> steps;
  const plan::Arg eps = float_arg("eps", 1e-5);
  for (const Sizes& sizes :
       std::vector<Sizes>{{5, 3}, {2, 3, 4, 4}, {3, 5, 7, 7}, {2, 3, 16, 16}, {3, 2, 700}}) {
    const Shape all{sizes}, channel{{sizes[1]}};
    steps.push_back({"aten._native_batch_norm_legit_functional.default",
                     {{"input", all},
                      {"weight", channel},
                      {"bias", channel},
                      {"running_mean", channel},
                      {"running_var", channel}},
                     {all, channel, channel, channel, channel},
                     {int_arg("training", 1), float_arg("momentum", 0.1), eps}});
    steps.push_back({"aten.native_batch_norm_backward.default",
                     {{"grad_out", all},
                      {"input", all},
                      {"weight", channel},
                      {"running_mean", channel},
                      {"running_var", channel},
                      {"save_mean", channel},
                      {"save_invstd", channel}},
                     {all, channel, channel},
                     {int_arg("train", 1), eps}});
  }
  return steps;
}

INSTANTIATE_TEST_SUITE_P(Pointwise, NativeBf16, testing::ValuesIn(pointwise()));
INSTANTIATE_TEST_SUITE_P(Reductions, NativeBf16, testing::ValuesIn(reductions()));
INSTANTIATE_TEST_SUITE_P(RowNorms, NativeBf16, testing::ValuesIn(row_norms()));
INSTANTIATE_TEST_SUITE_P(BatchNorms, NativeBf16, testing::ValuesIn(batch_norms()));

}  // namespace
}  // namespace dc::runtime
