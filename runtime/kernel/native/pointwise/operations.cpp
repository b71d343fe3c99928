#include "runtime/kernel/native/pointwise/operations.h"

#include <algorithm>

#include "runtime/kernel/native/pointwise/expression_tensors.h"
#include "runtime/kernel/scalar/arithmetic.h"

namespace dc::runtime::kernel::native {
namespace {

using base::DType;
using base::Expression;
using base::ExpressionArgument;
using base::ExpressionArgumentKind;
using base::ExpressionOperation;

// What copies and conversions do to each lane.
DC_POINTWISE(Same, ("self"))
constexpr Row kConversions[] = {
    {"aten._to_copy.default", pointwise<Same>},
    {"aten.clone.default", pointwise<Same>},
};

Factory factory_of(std::string_view op) {
  for (const std::span<const Row> rows : {activation_kernels(), arithmetic_kernels(),
                                          choice_kernels(), std::span<const Row>(kConversions)}) {
    const auto row = std::ranges::find_if(rows, [&](const Row& each) { return each.op == op; });
    if (row != rows.end()) return row->factory;
  }
  return nullptr;
}

plan::Arg argument_of(const ExpressionArgument& argument, size_t operands) {
  plan::Arg arg;
  arg.name = argument.name;
  arg.i = argument.integer;
  arg.f = argument.number;
  arg.s = argument.word;
  switch (argument.kind) {
    case ExpressionArgumentKind::None:
      arg.kind = plan::ArgKind::None;
      break;
    case ExpressionArgumentKind::Operand:
      arg.kind = plan::ArgKind::Tensor;
      break;
    case ExpressionArgumentKind::Value:
      arg.kind = plan::ArgKind::Tensor;
      arg.i += static_cast<int64_t>(operands);
      break;
    case ExpressionArgumentKind::Bool:
      arg.kind = plan::ArgKind::Bool;
      break;
    case ExpressionArgumentKind::Int:
      arg.kind = plan::ArgKind::Int;
      break;
    case ExpressionArgumentKind::Float:
      arg.kind = plan::ArgKind::Float;
      break;
    case ExpressionArgumentKind::Word:
      arg.kind = plan::ArgKind::String;
      break;
    case ExpressionArgumentKind::Ints:
      arg.kind = plan::ArgKind::Ints;
      arg.ints = argument.integers;
      break;
  }
  return arg;
}

base::Result<std::unique_ptr<Pointwise>> kernel_of(const ExpressionOperation& operation,
                                                   size_t number, size_t operands,
                                                   const plan::Plan& described) {
  plan::Instruction instruction;
  instruction.op = "aten." + operation.overload;
  for (const ExpressionArgument& argument : operation.arguments)
    instruction.args.push_back(argument_of(argument, operands));
  instruction.outputs = {static_cast<int32_t>(operands + number)};
  const Factory factory = factory_of(instruction.op);
  if (factory == nullptr) {
    return base::Status(base::ErrorKind::Unsupported, "DC6131",
                        "there is no native kernel named '" + instruction.op +
                            "' for fused kernels; compile the plan with the dcc that belongs to "
                            "this dcrun");
  }
  const AddressMap nowhere(described, nullptr, 0);
  Call call(instruction, nowhere, nullptr);
  Made made = factory(call);
  if (!made.ok()) {
    return std::move(made).status().add_context("in operation t" + std::to_string(number) +
                                                " of a fused kernel");
  }
  auto* kernel = dynamic_cast<Pointwise*>(made->get());
  DC_CHECK(kernel != nullptr);
  (void)made->release();
  return std::unique_ptr<Pointwise>(kernel);
}

std::vector<std::span<const int64_t>> sizes_of(std::span<const BoundTensor> tensors) {
  std::vector<std::span<const int64_t>> sizes;
  for (const BoundTensor& tensor : tensors) sizes.push_back(tensor.sizes);
  return sizes;
}

}  // namespace

base::Result<Operations> Operations::of(const Expression& expression,
                                        std::span<const BoundTensor> operands, bool has_dims) {
  Operations made;
  made.described_ = std::make_unique<plan::Plan>();
  plan::Plan& described = *made.described_;
  // What counts of a tensor is its element type, and whether it has dims.
  const auto add = [&](DType dtype, bool with_dims) {
    plan::Tensor& tensor = described.tensors.emplace_back();
    tensor.dtype = dtype;
    if (with_dims) tensor.sizes = {kLoopLanes}, tensor.strides = {1};
    tensor.slice = 0;
  };
  for (const BoundTensor& operand : operands) add(operand.dtype, !operand.sizes.empty());
  for (const ExpressionOperation& operation : expression.operations) add(operation.dtype, has_dims);
  described.slices.emplace_back();
  for (size_t i = 0; i < expression.operations.size(); ++i) {
    if (base::is_reduction(expression.operations[i].overload) ||
        base::index_range(expression.operations[i])) {
      made.kernels_.push_back(nullptr);
      continue;
    }
    DC_ASSIGN_OR_RETURN(auto kernel,
                        kernel_of(expression.operations[i], i, operands.size(), described));
    made.kernels_.push_back(std::move(kernel));
  }
  return made;
}

bool is_operation(std::string_view op) { return factory_of(op) != nullptr; }

base::Result<Expression> read_expression(Call& call) {
  auto expression = Expression::parse(call.text("body", ""));
  if (!expression.ok())
    return std::move(expression)
        .status()
        .add_context("recompile the plan with the dcc that belongs to this dcrun");
  return expression;
}

std::vector<std::string> fused_operands(const Expression& expression) {
  std::vector<std::string> names;
  for (size_t i = 0; i < expression.operands(); ++i) names.push_back("a" + std::to_string(i));
  return names;
}

ExpressionTensors expression_tensors(Call& call, const Expression& expression,
                                     std::span<const std::string> operands) {
  ExpressionTensors made;
  call.require(call.tensor_count() == operands.size() && operands.size() == expression.operands() &&
                   call.outputs() == expression.results.size(),
               "its expression has other numbers of operands or results");
  for (const std::string& name : operands) made.operands.push_back(call.tensor(name));
  for (size_t i = 0; i < expression.results.size() && call.ok(); ++i) {
    made.results.push_back(call.output(i));
    if (!call.ok()) break;
    call.require(made.results[i].dtype == expression.operations[expression.results[i]].dtype,
                 "a result has another element type than its value");
  }
  if (!call.ok()) return made;
  auto shape = base::shape_of(expression, sizes_of(made.operands), sizes_of(made.results));
  call.require(shape.has_value(), "its operands and results have shapes that do not fit");
  if (!call.ok()) return made;
  made.shape = *std::move(shape);
  const std::span<const int64_t> sizes = made.shape.elements;
  std::vector<std::vector<int64_t>> strides;
  for (size_t i = 0; i < made.results.size(); ++i) {
    const BoundTensor& result = made.results[i];
    strides.push_back(expression.is_row_value(expression.results[i])
                          ? base::strides_of_reduced(made.shape, result.sizes, result.strides)
                          : std::vector(result.strides.begin(), result.strides.end()));
  }
  for (size_t i = 0; i < made.operands.size(); ++i) {
    BoundTensor whole = made.operands[i];
    const std::vector<int64_t> whole_sizes =
        base::whole_sizes(expression, i, whole.sizes, made.shape);
    whole.sizes = whole_sizes;
    strides.push_back(*broadcast_strides(whole, sizes));
  }
  if (const auto dim = expression.window_dim()) {
    strides.emplace_back(sizes.size(), 0);
    strides.back()[static_cast<size_t>(*dim)] = 1;
  }
  if (made.shape.folded.empty()) {
    made.iteration = Iteration(sizes, strides);
  } else {
    std::vector<std::vector<int64_t>> of_rows = strides, of_columns = strides;
    const auto column = static_cast<ptrdiff_t>(made.shape.first_column);
    for (auto& own : of_rows) own.resize(made.shape.first_column);
    for (auto& own : of_columns) own.erase(own.begin(), own.begin() + column);
    made.across = Iteration(sizes.first(made.shape.first_column), of_rows, DimOrder::AsTheyAre);
    made.along = Iteration(sizes.subspan(made.shape.first_column), of_columns, DimOrder::AsTheyAre);
  }
  call.require(made.iteration.fits() && made.across.fits() && made.along.fits(),
               "its tensors have too many dims");
  return made;
}

}  // namespace dc::runtime::kernel::native
