#include "runtime/kernel/cuda/expression_kernels.h"

#include "runtime/kernel/cuda/fused_source.h"
#include "runtime/kernel/cuda/reduce_kernels.h"
#include "runtime/kernel/cuda/walks.h"
#include "runtime/kernel/native/elementwise.h"
#include "runtime/kernel/native/registry.h"

namespace dc::runtime::kernel::cuda {
namespace {

using base::DType;
using base::Expression;
using base::ExpressionArgument;
using base::ExpressionArgumentKind;
using base::Result;
using native::Call;
using native::Dense;
using native::Made;

Result<Launch> launch_of(Workshop& workshop, const KernelSource& source,
                         const native::ExpressionTensors& tensors, const void* totals = nullptr) {
  std::vector<const void*> addresses;  // as the members of the kernel's parameter
  for (const BoundTensor& tensor : tensors.results) addresses.push_back(tensor.data);
  for (const BoundTensor& tensor : tensors.operands) addresses.push_back(tensor.data);
  if (totals != nullptr) addresses.push_back(totals);
  DC_ASSIGN_OR_RETURN(Launch made, workshop.launch(source, workshop.blocks_for(source.count),
                                                   std::as_bytes(std::span(addresses))));
  workshop.keep_resident(made);
  return made;
}

// Of an expression without reductions.
Made kernel_of(Workshop& workshop, const Expression& expression,
               const native::ExpressionTensors& tensors) {
  DC_ASSIGN_OR_RETURN(const FusedSource source, fused_source(expression, tensors));
  std::vector<Launch> launches(1);
  DC_ASSIGN_OR_RETURN(launches[0], launch_of(workshop, source.kernel, tensors));
  return workshop.kernel(std::move(launches));
}

// A kernel that leaves totals of columns, and kernels that fold these.
Made kernel_with_folds(Workshop& workshop, Call& call, const FusedSource& source,
                       const native::ExpressionTensors& tensors, int32_t stream) {
  const int64_t bytes_of_fold = source.parts * tensors.along.count() * int64_t{sizeof(double)};
  DC_ASSIGN_OR_RETURN(
      std::byte * totals,
      workshop.scratch(stream, static_cast<int64_t>(source.folds.size()) * bytes_of_fold));
  std::vector<Launch> launches(1);
  DC_ASSIGN_OR_RETURN(launches[0], launch_of(workshop, source.kernel, tensors, totals));
  for (const FusedSource::Fold& fold : source.folds) {
    Walk<2> kept = walk_of<2>(call, tensors.along);
    if (!call.ok()) return call.made(nullptr);
    const auto dims = tensors.along.dims();
    for (size_t d = 0; d < dims.size(); ++d) kept.strides[d][1] = dims[d].strides[fold.result];
    DC_ASSIGN_OR_RETURN(
        Launch launch,
        totals_launch(workshop, {totals, source.parts, fold.kind, fold.from,
                                 &tensors.results[fold.result], &kept, fold.divisor}));
    launches.push_back(std::move(launch));
    totals += bytes_of_fold;
  }
  return workshop.kernel(std::move(launches));
}

// An argument of an instruction that is no tensor. None where no element-wise operator has such.
ExpressionArgument argument_of(const plan::Arg& arg) {
  ExpressionArgument made;
  made.name = arg.name;
  made.integer = arg.i;
  made.number = arg.f;
  made.word = arg.s;
  if (arg.kind == plan::ArgKind::Bool) made.kind = ExpressionArgumentKind::Bool;
  if (arg.kind == plan::ArgKind::Int) made.kind = ExpressionArgumentKind::Int;
  if (arg.kind == plan::ArgKind::Float) made.kind = ExpressionArgumentKind::Float;
  if (arg.kind == plan::ArgKind::String) made.kind = ExpressionArgumentKind::Word;
  return made;
}
ExpressionArgument operand(std::string name, size_t index) {
  ExpressionArgument made;
  made.name = std::move(name);
  made.kind = ExpressionArgumentKind::Operand;
  made.integer = static_cast<int64_t>(index);
  return made;
}
ExpressionArgument value(std::string name, size_t operation) {
  ExpressionArgument made = operand(std::move(name), operation);
  made.kind = ExpressionArgumentKind::Value;
  return made;
}

Expression expression_of(DType dtype, std::string overload,
                         std::vector<ExpressionArgument> arguments) {
  Expression made;
  made.operations.push_back({dtype, std::move(overload), std::move(arguments)});
  made.results = {0};
  return made;
}

// Of tensors without gaps and of one length.
Made flat_kernel(Workshop& workshop, const Expression& expression, const Dense& result,
                 std::span<const Dense> operands) {
  const int64_t sizes[] = {result.count}, strides[] = {1};
  const auto bound = [&](const Dense& tensor) {
    return BoundTensor{tensor.data, tensor.dtype, sizes, strides};
  };
  native::ExpressionTensors tensors;
  tensors.results.push_back(bound(result));
  for (const Dense& each : operands) tensors.operands.push_back(bound(each));
  const std::vector<std::vector<int64_t>> all(1 + operands.size(), {1});
  tensors.iteration = native::Iteration(sizes, all);
  return kernel_of(workshop, expression, tensors);
}

// log_sigmoid has a second result, exp(-|x|), and its gradient an operand of it, which exports for
// GPUs leave without elements. Then it is as if there were none.
plan::Instruction without_empty(const plan::Instruction& instruction, const AddressMap& addresses) {
  plan::Instruction made = instruction;
  std::erase_if(made.args, [&](const plan::Arg& arg) {
    return arg.name == "buffer" && arg.kind == plan::ArgKind::Tensor &&
           addresses.bind(static_cast<int32_t>(arg.i)).numel() == 0;
  });
  if (made.outputs.size() == 2 &&
      (made.outputs[1] < 0 || addresses.bind(made.outputs[1]).numel() == 0))
    made.outputs.pop_back();
  return made;
}

}  // namespace

Made fused_kernel(Workshop& workshop, Call& call, int32_t stream) {
  DC_ASSIGN_OR_RETURN(const Expression expression, native::read_expression(call));
  const auto tensors =
      native::expression_tensors(call, expression, native::fused_operands(expression));
  if (!call.ok()) return call.made(nullptr);
  if (!expression.has_reductions()) return kernel_of(workshop, expression, tensors);
  call.require(!tensors.shape.elements.empty(), "its values have no dims");
  if (!call.ok()) return call.made(nullptr);
  DC_ASSIGN_OR_RETURN(const FusedSource source, fused_source(expression, tensors));
  if (source.parts > 0) return kernel_with_folds(workshop, call, source, tensors, stream);
  std::vector<Launch> launches(1);
  DC_ASSIGN_OR_RETURN(launches[0], launch_of(workshop, source.kernel, tensors));
  return workshop.kernel(std::move(launches));
}

Made operator_kernel(Workshop& workshop, const plan::Instruction& whole,
                     const AddressMap& addresses) {
  const plan::Instruction instruction = without_empty(whole, addresses);
  Call call(instruction, addresses, nullptr);
  std::vector<std::string> operands;
  std::vector<ExpressionArgument> arguments;
  for (const plan::Arg& arg : instruction.args) {
    if (arg.kind == plan::ArgKind::Tensor) {
      arguments.push_back(operand(arg.name, operands.size()));
      operands.push_back(arg.name);
    } else {
      arguments.push_back(argument_of(arg));
    }
  }
  const bool has_result = call.has_result(0);
  call.require(has_result, "result 0 is missing");
  if (!has_result) return call.made(nullptr);
  const std::string overload = instruction.op.substr(instruction.op.find('.') + 1);
  const DType dtype = addresses.bind(instruction.outputs[0]).dtype;
  Expression expression = expression_of(dtype, overload, std::move(arguments));
  if (overload == "log_sigmoid_forward.default" && instruction.outputs.size() == 2) {
    expression.operations.push_back({dtype, "abs.default", {operand("self", 0)}});
    expression.operations.push_back({dtype, "neg.default", {value("self", 1)}});
    expression.operations.push_back({dtype, "exp.default", {value("self", 2)}});
    expression.results.push_back(3);
  }
  const auto tensors = native::expression_tensors(call, expression, operands);
  if (!call.ok()) return call.made(nullptr);
  return kernel_of(workshop, expression, tensors);
}

Made copy_kernel(Workshop& workshop, const BoundTensor& from, const BoundTensor& to) {
  native::ExpressionTensors tensors;
  tensors.results.push_back(to);
  tensors.operands.push_back(from);
  const std::vector<int64_t> strides(to.strides.begin(), to.strides.end());
  const std::vector<std::vector<int64_t>> all = {strides,
                                                 *native::broadcast_strides(from, to.sizes)};
  tensors.iteration = native::Iteration(to.sizes, all);
  return kernel_of(workshop, expression_of(to.dtype, "_to_copy.default", {operand("self", 0)}),
                   tensors);
}

Made cast_kernel(Workshop& workshop, Call& call) {
  const Dense from = call.operand(0), to = call.result(0);
  call.require(to.count == from.count, "operand and result differ in element count");
  if (!call.ok()) return call.made(nullptr);
  return flat_kernel(workshop, expression_of(to.dtype, "_to_copy.default", {operand("self", 0)}),
                     to, {{from}});
}

Made accumulate_kernel(Workshop& workshop, Call& call) {
  const native::AccumulateOperands operands = native::read_accumulate(call);
  if (!call.ok()) return call.made(nullptr);
  return flat_kernel(
      workshop, expression_of(DType::F32, "add.Tensor", {operand("self", 0), operand("other", 1)}),
      operands.sum, {{operands.sum, operands.g}});
}

}  // namespace dc::runtime::kernel::cuda
