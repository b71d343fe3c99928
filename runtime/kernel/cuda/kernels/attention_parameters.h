// The parameters of the kernels of attention, for those who launch them too.
#pragma once

#include "runtime/kernel/cuda/kernels/row_parameters.h"

namespace dc::runtime::kernel::cuda {

// Queries of a block, and keys that it has at a time; columns of a tensor that are in shared memory
// at once.
inline constexpr int kAttentionTile = 64, kAttentionChunk = 32;
// Columns that a kernel may be made for: the least that are enough.
inline constexpr int kAttentionDims[] = {32, 64, 128, 256};

// [batch, heads, length, dim], of the element type that the kernel is for.
struct HeadTensor {
  void* data;                        // null: it is not wanted
  int64_t batch, head, row, column;  // strides
};
struct Attention {
  int64_t batch, heads, heads_per_key, queries, keys, dim;
  float scale;
  bool is_causal;
  HeadTensor query, key, value, out;
  Numbers mask;  // added to scores; its strides:
  int64_t mask_batch, mask_head, mask_row, mask_column;
  HeadTensor logsumexp;  // f32, without columns
};
struct AttentionBackward {
  Attention of;
  HeadTensor gradient, of_query, of_key, of_value;
  float* deltas;  // [batch, heads, queries]: of each query the product of its result and gradient
};

}  // namespace dc::runtime::kernel::cuda
