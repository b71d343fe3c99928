// From the iterations of the CPU's kernels to the walks of a GPU's.
#pragma once

#include <span>

#include "runtime/kernel/cuda/kernels/row_parameters.h"
#include "runtime/kernel/native/norms/rows.h"

namespace dc::runtime::kernel::cuda {

// Tensors [first, first + kTensors) of the iteration. Refuses more than kMostWalkDims dims.
template <int kTensors>
Walk<kTensors> walk_of(native::Call& call, const native::Iteration& iteration, size_t first = 0) {
  Walk<kTensors> walk{};
  walk.count = iteration.count();
  const auto dims = iteration.dims();
  call.require(dims.size() <= kMostWalkDims, "on GPUs its tensors may lie in at most 8 steps");
  if (!call.ok()) return walk;
  for (const native::Iteration::Dim& dim : dims) {
    walk.sizes[walk.dims] = dim.size;
    for (size_t t = 0; t < kTensors; ++t) walk.strides[walk.dims][t] = dim.strides[first + t];
    ++walk.dims;
  }
  return walk;
}

template <int kTensors>
RowWalk<kTensors> row_walk_of(native::Call& call, const native::Rows& rows) {
  RowWalk<kTensors> walk{};
  walk.rows = walk_of<kTensors>(call, rows.first_elements());
  walk.length = rows.length();
  for (size_t t = 0; t < kTensors; ++t) walk.strides[t] = rows.stride(t);
  return walk;
}

// One number at each place, `stride` apart. Refuses integers.
inline Numbers numbers_of(native::Call& call, const BoundTensor& tensor, int64_t stride = 1) {
  Numbers numbers{tensor.data, Numbers::kF32, stride};
  call.require(base::is_floating(tensor.dtype), "its numbers must be floating-point");
  if (tensor.dtype == base::DType::BF16) numbers.type = Numbers::kBF16;
  if (tensor.dtype == base::DType::F16) numbers.type = Numbers::kF16;
  if (tensor.dtype == base::DType::F64) numbers.type = Numbers::kF64;
  return numbers;
}
// Of a tensor that is one row.
inline Numbers row_numbers_of(native::Call& call, const std::optional<BoundTensor>& tensor,
                              int64_t length) {
  if (!tensor || !call.ok()) return {};
  call.require(tensor->numel() == length, "a weight has another shape than a row");
  const native::Rows rows(call, *tensor, 0, tensor->sizes.size(), {&*tensor});
  return numbers_of(call, *tensor, rows.stride(0));
}

}  // namespace dc::runtime::kernel::cuda
