// A fused kernel gives, bit by bit, what the native kernels of its operations give one after the
// other: random expressions over random element types, shapes and strides.
#include <gmock/gmock.h>

#include "src/ir/native_ops.h"
#include "tests/runtime/kernel/random_expression.h"

namespace dc::runtime {
namespace {

using namespace test;

// The instruction of one operation.
plan::Instruction apart(const ExpressionOperation& operation, const std::vector<int32_t>& operands,
                        const std::vector<int32_t>& values, int32_t result) {
  std::vector<plan::Arg> args;
  for (const ExpressionArgument& argument : operation.arguments) {
    const auto index = static_cast<size_t>(argument.integer);
    plan::Arg arg = float_arg(argument.name, argument.number);
    if (argument.kind == ExpressionArgumentKind::Operand)
      arg = tensor_arg(operands[index], argument.name);
    if (argument.kind == ExpressionArgumentKind::Value)
      arg = tensor_arg(values[index], argument.name);
    if (argument.kind == ExpressionArgumentKind::Word) {
      arg.kind = plan::ArgKind::String;
      arg.s = argument.word;
    }
    args.push_back(arg);
  }
  return instruction("aten." + operation.overload, args, {result});
}

TEST(FusedKernel, GivesTheBitsOfItsOperations) {
  int compared = 0;
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    RandomExpression draw(seed);
    if (draw.operands.size() + draw.expression.results.size() > Expression::kMostTensors) continue;
    const std::string body = draw.expression.text();
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + body);
    const auto parsed = Expression::parse(body);
    ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
    ASSERT_EQ(*parsed, draw.expression);
    KernelBench bench;
    std::vector<int32_t> operands, values, results;
    for (const RandomOperand& operand : draw.operands) {
      operands.push_back(bench.tensor(operand.dtype, operand.sizes, operand.strides));
      fill(bench, operands.back(), operand.dtype, draw);
    }
    for (const ExpressionOperation& operation : draw.expression.operations) {
      const int32_t value = bench.tensor(operation.dtype, draw.shape);
      const base::Status ran = run_native(bench, apart(operation, operands, values, value));
      ASSERT_TRUE(ran.ok()) << ran.to_string();
      values.push_back(value);
    }
    for (size_t i = 0; i < draw.expression.results.size(); ++i) {
      const DType dtype = draw.expression.operations[draw.expression.results[i]].dtype;
      results.push_back(bench.tensor(dtype, draw.shape, draw.result_strides[i]));
    }
    const base::Status ran = run_native(bench, fused(body, operands, results));
    ASSERT_TRUE(ran.ok()) << ran.to_string();
    for (size_t i = 0; i < results.size(); ++i) {
      const int32_t value = values[draw.expression.results[i]];
      ASSERT_EQ(elements(bench, results[i]), elements(bench, value)) << "result " << i;
    }
    ++compared;
  }
  EXPECT_GT(compared, 2500);
}

// So the table of the compiler and the kernels of the runtime agree.
TEST(FusedKernel, KnowsEveryElementwiseOperator) {
  for (const ir::NativeOp& op : ir::native_ops()) {
    if (!op.is_elementwise) continue;
    KernelBench bench;
    const int32_t x = bench.tensor(DType::F32, {4}), y = bench.tensor(DType::F32, {4});
    const std::string overload(op.overload.substr(5));
    const base::Status ran =
        run_native(bench, fused("t0:f32=" + overload + "(self=a0);->t0", {x}, {y}));
    EXPECT_TRUE(ran.ok() || ran.code() == "DC6130") << overload << ": " << ran.to_string();
  }
}

TEST(FusedKernel, RefusesWhatDoesNotFit) {
  KernelBench bench;
  const int32_t x = bench.tensor(DType::F32, {4}), y = bench.tensor(DType::F32, {4}),
                half = bench.tensor(DType::BF16, {4}), other = bench.tensor(DType::F32, {3}),
                dimless = bench.tensor(DType::F32, {}),
                overlapping = bench.tensor(DType::F32, {4}, {0});
  const std::string body = "t0:f32=neg.default(self=a0);->t0";
  EXPECT_TRUE(run_native(bench, fused(body, {x}, {y})).ok());
  const auto code = [&](const std::string& text, const std::vector<int32_t>& operands,
                        const std::vector<int32_t>& results) {
    const base::Status status = run_native(bench, fused(text, operands, results));
    return status.ok() ? "" : status.code();
  };
  EXPECT_EQ(code("t0:f32=neg.default(self=a0)->t0", {x}, {y}), "DC1401");
  EXPECT_EQ(code(body, {x, x}, {y}), "DC6130");
  EXPECT_EQ(code(body, {}, {y}), "DC6130");
  EXPECT_EQ(code(body, {x}, {}), "DC6130");
  EXPECT_EQ(code(body, {x}, {half}), "DC6130");
  EXPECT_EQ(code(body, {other}, {y}), "DC6130");
  EXPECT_EQ(code(body, {dimless}, {dimless}), "DC6130");
  EXPECT_EQ(code(body, {x}, {overlapping}), "DC6130");
  EXPECT_EQ(code("t0:f32=mm.default(self=a0,mat2=a0);->t0", {x}, {y}), "DC6131");
  EXPECT_EQ(code("t0:f32=add.Tensor(self=a0);->t0", {x}, {y}), "DC6130");
}

// One thing about an expression that a hostile plan may have otherwise.
void change(RandomExpression& draw) {
  ExpressionOperation& operation =
      draw.expression.operations[draw.below(draw.expression.operations.size())];
  ExpressionArgument& argument = operation.arguments[draw.below(operation.arguments.size())];
  switch (draw.below(5)) {
    case 0:
      operation.dtype = draw.one_of(
          {DType::F32, DType::F64, DType::BF16, DType::I64, DType::I8, DType::Bool, DType::F16});
      break;
    case 1:
      argument.integer = static_cast<int64_t>(draw.below(8));
      break;
    case 2:
      argument.kind = draw.one_of({ExpressionArgumentKind::Operand, ExpressionArgumentKind::Value,
                                   ExpressionArgumentKind::Int, ExpressionArgumentKind::Float,
                                   ExpressionArgumentKind::None});
      break;
    case 3:
      operation.overload = draw.one_of({"add.Tensor", "exp.default", "where.self", "mul.Scalar",
                                        "floor_divide.default", "lt.Tensor", "clamp.default"});
      break;
    default:
      draw.expression.results.push_back(draw.below(draw.expression.operations.size()));
  }
}
void change(std::string& body, RandomExpression& draw) {
  constexpr std::string_view kSigns = "0123456789at.;:=,()->selfothr_bi";
  const size_t at = draw.below(body.size());
  const char sign = kSigns[draw.below(kSigns.size())];
  switch (draw.below(4)) {
    case 0:
      body.insert(at, 1, sign);
      break;
    case 1:
      body.erase(at, 1 + draw.below(4));
      break;
    case 2:
      body.insert(draw.below(body.size()), body.substr(at, 1 + draw.below(40)));
      break;
    default:
      body[at] = sign;
  }
}

// Under ASan: what is not refused stays within its tensors.
TEST(FusedKernel, RefusesOrRunsWhatWasChanged) {
  int refused = 0, ran = 0;
  for (uint32_t seed = 0; seed < 6000; ++seed) {
    RandomExpression draw(seed);
    for (size_t changes = draw.below(3); changes > 0; --changes) change(draw);
    std::string body = draw.expression.text();
    if (draw.below(4) == 0) change(body, draw);
    KernelBench bench;
    std::vector<int32_t> operands, results;
    for (const RandomOperand& operand : draw.operands) {
      operands.push_back(bench.tensor(operand.dtype, operand.sizes, operand.strides));
      fill(bench, operands.back(), operand.dtype, draw);
    }
    for (const size_t value : draw.expression.results)
      results.push_back(bench.tensor(draw.expression.operations[value].dtype, draw.shape));
    ++(run_native(bench, fused(body, operands, results)).ok() ? ran : refused);
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(ran, 1000);
}

}  // namespace
}  // namespace dc::runtime
