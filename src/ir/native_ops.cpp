#include "src/ir/native_ops.h"

#include <algorithm>

#include "src/base/kernel_items.h"

namespace dc::ir {
namespace {

using base::DType;
using base::KernelTensors;

// Every operand and result has one of these element types, the same in all.
bool all_are(const KernelTensors& tensors, std::initializer_list<DType> types) {
  if (tensors.inputs.empty()) return false;
  const DType type = tensors.inputs[0].dtype;
  if (std::find(types.begin(), types.end(), type) == types.end()) return false;
  const bool inputs = std::ranges::all_of(
      tensors.inputs, [&](const base::TensorMeta& input) { return input.dtype == type; });
  return inputs && std::ranges::all_of(tensors.results, [&](const auto& result) {
           return !result || result->dtype == type;
         });
}

// Matrices of one element type that is computed in.
bool triangular(const KernelTensors& tensors) { return all_are(tensors, {DType::F32, DType::F64}); }

[[maybe_unused]] bool product(const KernelTensors& tensors) {
  const bool has_elements = std::ranges::all_of(
      tensors.inputs, [](const base::TensorMeta& input) { return input.numel() > 0; });
  return has_elements && all_are(tensors, {DType::F32, DType::BF16});
}

// A batch of channels with one to three dims.
[[maybe_unused]] bool convolution(const KernelTensors& tensors) {
  return !tensors.inputs.empty() && tensors.inputs[0].shape.size() >= 3 &&
         tensors.inputs[0].shape.size() <= 5 && product(tensors);
}

using base::TensorMeta;

bool any(const KernelTensors&) { return true; }

bool has_floating(const KernelTensors& tensors) {
  return std::ranges::any_of(
      tensors.inputs, [](const TensorMeta& input) { return base::is_floating(input.dtype); });
}
bool floating_result(const KernelTensors& tensors) {
  return std::ranges::any_of(tensors.results, [](const auto& result) {
    return result && base::is_floating(result->dtype);
  });
}
bool floating(const KernelTensors& tensors) {
  return has_floating(tensors) || floating_result(tensors);
}
bool integral(const KernelTensors& tensors) { return !has_floating(tensors); }

// Rows whose elements have one distance: the tensors are contiguous, or rows have one dim, as the
// weight has.
bool rows(const KernelTensors& tensors) {
  const auto one_dim = [](const TensorMeta& input) { return input.shape.size() == 1; };
  return has_floating(tensors) && (std::ranges::any_of(tensors.inputs, one_dim) ||
                                   std::ranges::all_of(tensors.inputs, &TensorMeta::is_contiguous));
}

bool batch_norm(const KernelTensors& tensors) {
  return !tensors.inputs.empty() && base::is_floating(tensors.inputs[0].dtype) &&
         tensors.inputs[0].shape.size() >= 2 && tensors.inputs[0].numel() > 0;
}
// Channels of two or three dims, all of one element type but the indices.
bool pooling(const KernelTensors& tensors) {
  return !tensors.inputs.empty() && base::is_floating(tensors.inputs[0].dtype) &&
         tensors.inputs[0].numel() > 0;
}

bool is_index(const TensorMeta& tensor) {
  return tensor.dtype == DType::I64 || tensor.dtype == DType::I32;
}
bool is_small_floating(const TensorMeta& tensor) {
  return base::is_floating(tensor.dtype) && tensor.dtype != DType::F64;
}
// Whether the rows of images follow each other; the last two dims are theirs.
bool are_joined(const TensorMeta& images) {
  const size_t dims = images.shape.size();
  const int64_t height = images.shape[dims - 2], width = images.shape[dims - 1];
  return height == 1 || width == 1 || images.strides[dims - 2] == width * images.strides[dims - 1];
}
// Rows or images of classes with one class number each; `first` is the operand with the classes.
bool loss_at(const KernelTensors& tensors, size_t first) {
  if (tensors.inputs.size() < first + 2) return false;
  const TensorMeta& values = tensors.inputs[first];
  const TensorMeta& target = tensors.inputs[first + 1];
  if (!is_small_floating(values) || target.dtype != DType::I64) return false;
  if (values.shape.size() == 2) return target.shape.size() == 1;
  return values.shape.size() == 4 && target.shape.size() == 3 && are_joined(values) &&
         are_joined(target);
}
bool loss(const KernelTensors& tensors) { return loss_at(tensors, 0); }
bool loss_backward(const KernelTensors& tensors) { return loss_at(tensors, 1); }

// f64 stays with libtorch.
bool attention(const KernelTensors& tensors) {
  return std::ranges::all_of(tensors.inputs, [](const TensorMeta& input) {
    return is_small_floating(input) && input.numel() > 0;
  });
}

// CUDA's operators: a causal mask ends with the last key, not with the one at the query's place as
// the kernels have it. The state of their random numbers comes last; without dropout it is not
// read.
bool attention_of_equal_lengths(const KernelTensors& tensors) {
  const auto& inputs = tensors.inputs;
  constexpr size_t kForward = 3, kBackward = 6;
  if (inputs.size() < kForward) return false;
  const size_t first = inputs.size() == kForward ? 0 : 1;  // queries; before them the gradient
  const size_t count = std::min(inputs.size(), kBackward);
  return std::all_of(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(count),
                     [](const TensorMeta& input) {
                       return is_small_floating(input) && input.numel() > 0 &&
                              input.shape.size() >= 3;
                     }) &&
         inputs[first].shape[2] == inputs[first + 1].shape[2];
}

bool embedding(const KernelTensors& tensors) {
  return tensors.inputs.size() == 2 && tensors.inputs[0].shape.size() == 2 &&
         is_index(tensors.inputs[1]);
}
bool embedding_backward(const KernelTensors& tensors) {
  return tensors.inputs.size() == 2 && is_small_floating(tensors.inputs[0]) &&
         is_index(tensors.inputs[1]);
}

// self, index, and what is scattered, if anything.
bool gather(const KernelTensors& tensors) {
  const auto& inputs = tensors.inputs;
  if (inputs.size() < 2 || !is_index(inputs[1])) return false;
  if (inputs.size() > 2 && inputs[2].dtype != inputs[0].dtype) return false;
  return std::ranges::all_of(inputs, [&](const TensorMeta& input) {
    return input.shape.size() == inputs[0].shape.size();
  });
}
bool index_select(const KernelTensors& tensors) {
  return tensors.inputs.size() == 2 && is_index(tensors.inputs[1]) &&
         !tensors.inputs[0].shape.empty() && tensors.inputs[1].shape.size() <= 1;
}
// self, then numbers; a mask chooses a number of elements that depends on data.
bool index(const KernelTensors& tensors) {
  return tensors.inputs.size() >= 2 && tensors.inputs.size() <= 7 &&
         std::all_of(tensors.inputs.begin() + 1, tensors.inputs.end(), is_index);
}
bool index_add(const KernelTensors& tensors) {
  const auto& inputs = tensors.inputs;
  return inputs.size() == 3 && !inputs[0].shape.empty() && inputs[1].shape.size() == 1 &&
         is_index(inputs[1]) && inputs[2].dtype == inputs[0].dtype &&
         inputs[2].shape.size() == inputs[0].shape.size();
}
bool index_put(const KernelTensors& tensors) {
  const auto& inputs = tensors.inputs;
  return inputs.size() >= 3 && inputs.size() <= 8 && inputs.back().dtype == inputs.front().dtype &&
         std::all_of(inputs.begin() + 1, inputs.end() - 1, is_index);
}

constexpr NativeOp kOps[] = {
#define DC_NATIVE(overload, condition) {"aten." #overload, condition, false},
#define DC_ELEMENTWISE(overload, condition) {"aten." #overload, condition, true},
#include "src/ir/native_ops.def"
#undef DC_NATIVE
};

}  // namespace

std::span<const NativeOp> native_ops() { return kOps; }

namespace {

const NativeOp* find(std::string_view overload) {
  const std::span<const NativeOp> ops = native_ops();
  const auto row = std::ranges::find(ops, overload, &NativeOp::overload);
  return row == ops.end() ? nullptr : &*row;
}

// Attention draws no random numbers.
bool has_dropout(const base::KernelSignature& kernel) {
  base::KernelItems items(kernel);
  while (const auto item = items.next())
    if (item->name == "dropout_p" && !item->values.empty() && item->values[0] != 0) return true;
  return false;
}

}  // namespace

bool has_native_kernel(const base::KernelSignature& kernel) {
  const NativeOp* op = find(kernel.op());
  return op != nullptr && op->takes(kernel.tensors()) && !has_dropout(kernel);
}

bool is_elementwise(std::string_view overload) {
  const NativeOp* op = find(overload);
  return op != nullptr && op->is_elementwise;
}

}  // namespace dc::ir
