// A fused kernel gives, bit by bit, what the native kernels of its operations give one after the
// other: random expressions over random element types, shapes and strides.
#include <gmock/gmock.h>

#include <cstdlib>

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
    if (argument.kind == ExpressionArgumentKind::Ints) {
      arg.kind = plan::ArgKind::Ints;
      arg.ints = argument.integers;
    }
    args.push_back(arg);
  }
  return instruction("aten." + operation.overload, args, {result});
}

// Reductions read row-major tensors: an operand lies as one first.
std::vector<int32_t> row_major(KernelBench& bench, const RandomExpression& draw,
                               const std::vector<int32_t>& operands) {
  std::vector<int32_t> made;
  for (size_t i = 0; i < operands.size(); ++i) {
    made.push_back(bench.tensor(draw.operands[i].dtype, draw.shape));
    const base::Status ran = run_native(
        bench, instruction("aten._to_copy.default", {tensor_arg(operands[i], "self")}, {made[i]}));
    EXPECT_TRUE(ran.ok()) << ran.to_string();
  }
  return made;
}

// Calls f(place in the whole operand, place in its memory or -1) for each element.
template <typename F>
void for_each_in_window(const Sizes& sizes, const RandomOperand& operand, size_t dim, F&& f) {
  Sizes at(sizes.size());
  for (int64_t place = 0;; ++place) {
    int64_t offset = 0;
    for (size_t d = 0; d < at.size(); ++d)
      offset += (at[d] - (d == dim ? operand.window->begin : 0)) * operand.strides[d];
    const bool is_in = at[dim] >= operand.window->begin && at[dim] < operand.window->end;
    f(place, is_in ? offset : -1);
    size_t d = at.size();
    while (d > 0 && ++at[d - 1] == sizes[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

// What an operand with a window stands for: zeros with its elements among them.
int32_t with_zeros(KernelBench& bench, const RandomExpression& draw, size_t operand, int32_t id) {
  const RandomOperand& own = draw.operands[operand];
  if (!own.window) return id;
  Sizes sizes = own.sizes;
  const size_t dim =
      static_cast<size_t>(own.window->dim) + sizes.size() - draw.shape.size();  // its own
  sizes[dim] = draw.shape[static_cast<size_t>(own.window->dim)];
  const int32_t made = bench.tensor(own.dtype, sizes);
  const auto size = base::byte_size(own.dtype);
  for_each_in_window(sizes, own, dim, [&](int64_t place, int64_t offset) {
    std::byte* to = bench.data<std::byte>(made) + place * size;
    std::memset(to, 0, static_cast<size_t>(size));
    if (offset >= 0)
      std::memcpy(to, bench.data<std::byte>(id) + offset * size, static_cast<size_t>(size));
  });
  return made;
}

// The value of index_in.range.
void fill_range(KernelBench& bench, int32_t id, const base::IndexRange& range, const Sizes& sizes) {
  RandomOperand all{DType::Bool, sizes, Sizes(sizes.size(), 0), range};
  for_each_in_window(
      sizes, all, static_cast<size_t>(range.dim),
      [&](int64_t place, int64_t offset) { bench.data<uint8_t>(id)[place] = offset >= 0 ? 1 : 0; });
}

// How many of the seeds' expressions were compared.
int compare_with_operations(uint32_t seeds, Ends ends, Ranges ranges = Ranges::None) {
  int compared = 0;
  for (uint32_t seed = 0; seed < seeds; ++seed) {
    RandomExpression draw(seed, ends, ranges);
    if (draw.expression.tensors() > Expression::kMostTensors) continue;
    const std::string body = draw.expression.text();
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + body);
    const auto parsed = Expression::parse(body);
    EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
    if (!parsed.ok()) break;
    EXPECT_EQ(*parsed, draw.expression);
    KernelBench bench;
    std::vector<int32_t> operands, padded, values, results;
    for (const RandomOperand& operand : draw.operands) {
      operands.push_back(bench.tensor(operand.dtype, operand.sizes, operand.strides));
      fill(bench, operands.back(), operand.dtype, draw);
      padded.push_back(with_zeros(bench, draw, padded.size(), operands.back()));
    }
    const std::vector<int32_t> whole =
        ends == Ends::Elementwise ? padded : row_major(bench, draw, padded);
    for (const ExpressionOperation& operation : draw.expression.operations) {
      const int32_t value = bench.tensor(operation.dtype, draw.sizes_of(values.size()));
      if (const auto range = base::index_range(operation)) {
        fill_range(bench, value, *range, draw.shape);
        values.push_back(value);
        continue;
      }
      const auto& from = base::is_reduction(operation.overload) ? whole : padded;
      const base::Status ran = run_native(bench, apart(operation, from, values, value));
      EXPECT_TRUE(ran.ok()) << ran.to_string();
      values.push_back(value);
    }
    for (size_t i = 0; i < draw.expression.results.size(); ++i) {
      const DType dtype = draw.expression.operations[draw.expression.results[i]].dtype;
      results.push_back(bench.tensor(dtype, draw.result_sizes[i], draw.result_strides[i]));
    }
    const base::Status ran = run_native(bench, fused(body, operands, results));
    EXPECT_TRUE(ran.ok()) << ran.to_string();
    for (size_t i = 0; i < results.size(); ++i) {
      const int32_t value = values[draw.expression.results[i]];
      EXPECT_EQ(elements(bench, results[i]), elements(bench, value)) << "result " << i;
    }
    if (testing::Test::HasFailure()) break;
    ++compared;
  }
  return compared;
}

TEST(FusedKernel, GivesTheBitsOfItsOperations) {
  EXPECT_GT(compare_with_operations(3000, Ends::Elementwise), 2500);
}

// All of them with DCC_SLOW_TESTS=1.
TEST(FusedKernel, GivesTheBitsOfItsReductions) {
  const uint32_t seeds = std::getenv("DCC_SLOW_TESTS") != nullptr ? 10000 : 1000;
  EXPECT_GT(compare_with_operations(seeds, Ends::WithReductions), static_cast<int>(seeds / 10 * 9));
}

TEST(FusedKernel, GivesTheBitsOfOperationsThatReadRowValues) {
  const uint32_t seeds = std::getenv("DCC_SLOW_TESTS") != nullptr ? 10000 : 600;
  EXPECT_GT(compare_with_operations(seeds, Ends::ReadsRows), static_cast<int>(seeds / 10 * 8));
}

TEST(FusedKernel, GivesTheBitsOfItsOperationsOnZerosAroundWindows) {
  EXPECT_GT(compare_with_operations(1500, Ends::Elementwise, Ranges::Some), 1250);
  EXPECT_GT(compare_with_operations(500, Ends::WithReductions, Ranges::Some), 450);
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
  const std::string window = "a0=window(dim=0,begin=1,end=4);" + body;
  EXPECT_EQ(code(window, {other}, {y}), "");
  EXPECT_EQ(code(window, {y}, {x}), "DC6130");                                        // of 4
  EXPECT_EQ(code("a0=window(dim=0,begin=2,end=5);" + body, {other}, {y}), "DC6130");  // beyond
  EXPECT_EQ(code("a0=window(dim=1,begin=0,end=3);" + body, {other}, {y}), "DC6130");
  EXPECT_EQ(code("a0=window(dim=0,begin=-1,end=2);" + body, {other}, {y}), "DC1401");
  EXPECT_EQ(code(body, {x}, {overlapping}), "DC6130");
  EXPECT_EQ(code("t0:f32=mm.default(self=a0,mat2=a0);->t0", {x}, {y}), "DC6131");
  EXPECT_EQ(code("t0:f32=add.Tensor(self=a0);->t0", {x}, {y}), "DC6130");
}

TEST(FusedKernel, RefusesReductionsThatDoNotFit) {
  KernelBench bench;
  const int32_t x = bench.tensor(DType::F32, {4, 3, 2}), all = bench.tensor(DType::F32, {}),
                rows = bench.tensor(DType::F32, {4, 1}), columns = bench.tensor(DType::F32, {2}),
                middle = bench.tensor(DType::F32, {4, 2}), whole = bench.tensor(DType::I64, {2}),
                none = bench.tensor(DType::F32, {4, 0, 2});
  const auto code = [&](const std::string& reduction, int32_t operand, int32_t result) {
    const std::string body = "t0:f32=neg.default(self=a0);t1:" + reduction + ";->t1";
    const base::Status status = run_native(bench, fused(body, {operand}, {result}));
    return status.ok() ? "" : status.code();
  };
  EXPECT_EQ(code("f32=sum.dim_IntList(self=t0,dim=[0,1,2])", x, all), "");
  EXPECT_EQ(code("f32=amax.default(self=t0,dim=[1,2])", x, rows), "");
  EXPECT_EQ(code("f32=amax.default(self=t0,dim=[0,1])", x, columns), "");
  EXPECT_EQ(code("i64=sum.dim_IntList(self=t0,dim=[0,1])", x, whole), "");
  EXPECT_EQ(code("i64=mean.dim(self=t0,dim=[0,1])", x, whole), "DC6130");
  EXPECT_EQ(code("f32=amax.default(self=t0,dim=[0,1])", x, whole), "DC6130");
  EXPECT_EQ(code("f32=amax.default(self=t0,dim=[1])", x, middle), "DC6130");
  EXPECT_EQ(code("f32=amax.default(self=t0,dim=[0,1])", x, rows), "DC6130");
  EXPECT_EQ(code("f32=amax.default(self=t0,dim=[0,3])", x, columns), "DC6130");
  EXPECT_EQ(code("f32=sum.dim_IntList(self=t0,dim=[0,1])", none, columns), "DC6130");
}

// One thing about an expression that a hostile plan may have otherwise.
void change(RandomExpression& draw) {
  ExpressionOperation& operation =
      draw.expression.operations[draw.below(draw.expression.operations.size())];
  ExpressionArgument& argument = operation.arguments[draw.below(operation.arguments.size())];
  switch (draw.below(7)) {
    case 6:
      operation.is_row = !operation.is_row;
      break;
    case 5:
      argument.integers.push_back(static_cast<int64_t>(draw.below(3)));
      argument.kind = ExpressionArgumentKind::Ints;
      break;
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
                                        "floor_divide.default", "lt.Tensor", "clamp.default",
                                        "sum.dim_IntList", "amax.default"});
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
    constexpr Ends kEnds[] = {Ends::Elementwise, Ends::WithReductions, Ends::ReadsRows};
    RandomExpression draw(seed, kEnds[seed % 3]);
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
      results.push_back(
          bench.tensor(draw.expression.operations[value].dtype, draw.sizes_of(value)));
    ++(run_native(bench, fused(body, operands, results)).ok() ? ran : refused);
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(ran, 1000);
}

}  // namespace
}  // namespace dc::runtime
