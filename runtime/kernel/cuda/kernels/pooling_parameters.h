// The parameter of the kernels of pooling.h, for those who launch them too.
#pragma once

#include "runtime/kernel/scalar/language.h"

namespace dc::runtime::kernel::cuda {

using scalar::int64_t;

inline constexpr int kPooledDims = 3;  // depth, height, width; those that are not pooled have 1

// Windows along a dim: sliding ones, or adaptive, where output i covers the input from i / out to
// (i + 1) / out of its length.
struct PoolingDim {
  int64_t in, out;
  bool is_adaptive;
  int64_t size, stride, padding, dilation;
  bool counts_padding;  // in an average's divisor
};

// Strides of [batch, channels, dims].
struct PooledTensor {
  void* data;
  int64_t sample, channel, dims[kPooledDims];
};

// Of the element type that the kernel is for. Backward, `in` is what is made.
struct Pooling {
  PoolingDim dims[kPooledDims];
  int64_t batch, channels;
  PooledTensor in, out;
  PooledTensor indices;  // of i64, as many as `out` has elements; may be null forward
  int64_t divisor;       // of every window; 0: its number of elements
};

}  // namespace dc::runtime::kernel::cuda
