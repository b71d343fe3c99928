#include "src/ir/native_ops.h"

#include <algorithm>

namespace dc::ir {
namespace {

using base::DType;
using base::KernelTensors;

// Every operand and result has one of these element types, the same in all.
[[maybe_unused]] bool all_are(const KernelTensors& tensors, std::initializer_list<DType> types) {
  if (tensors.inputs.empty()) return false;
  const DType type = tensors.inputs[0].dtype;
  if (std::find(types.begin(), types.end(), type) == types.end()) return false;
  const bool inputs = std::ranges::all_of(
      tensors.inputs, [&](const base::TensorMeta& input) { return input.dtype == type; });
  return inputs && std::ranges::all_of(tensors.results, [&](const auto& result) {
           return !result || result->dtype == type;
         });
}

[[maybe_unused]] bool product(const KernelTensors& tensors) {
  return all_are(tensors, {DType::F32, DType::BF16});
}

constexpr NativeOp kOps[] = {
#define DC_NATIVE(overload, condition) {"aten." #overload, condition},
#include "src/ir/native_ops.def"
#undef DC_NATIVE
    {"", nullptr},  // a build may have no row
};

}  // namespace

std::span<const NativeOp> native_ops() { return std::span(kOps).first(std::size(kOps) - 1); }

bool has_native_kernel(const base::KernelSignature& kernel) {
  const std::span<const NativeOp> ops = native_ops();
  const auto row =
      std::ranges::find_if(ops, [&](const NativeOp& op) { return op.overload == kernel.op(); });
  return row != ops.end() && row->takes(kernel.tensors());
}

}  // namespace dc::ir
