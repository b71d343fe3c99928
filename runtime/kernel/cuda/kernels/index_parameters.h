// The parameters of the kernels of embedding.h and gather.h, for those who launch them too.
#pragma once

#include "runtime/kernel/cuda/kernels/walk.h"

namespace dc::runtime::kernel::cuda {

using scalar::int32_t;

// Threads that compare a place with the others (links.h): as many as fill a GPU where there are few
// thousand places.
inline constexpr int kLinkThreads = 8;

// Rows of a table, each for an index. Indices are of the type that the kernel is for.
struct Embedding {
  const void* indices;
  const void* table;
  void* to;
  Walk<2> places;  // in row-major order: indices, rows of `to`
  int64_t rows, columns, row_stride, stride, to_stride;
};

// Of a row, those that one thread sums.
inline constexpr int64_t kColumnsOfGradient = 8;
// The gradient of the table: for each row the sum of the gradients at its places, in their order,
// in f32.
struct EmbeddingBackward {
  const void* indices;
  const void* g;
  void* to;
  int32_t* links;  // links.h
  Walk<2> places;  // in row-major order: indices, rows of `g`
  int64_t rows, columns, row_stride, to_stride, g_stride, padding;
  bool by_frequency;
};

// For every index an element: chosen[index along a dim].
struct Gather {
  const void* indices;
  const void* chosen;
  void* to;
  Walk<3> walk;          // indices, chosen without the dim, to
  int64_t size, stride;  // of the dim
};

// The reverse. A line has all indices along the dim, which are taken in order: where several are
// equal, the last one stays.
struct Scatter {
  const void* indices;
  void* to;
  const void* from;  // null: `value`, of the type of elements
  RowWalk<3> lines;  // indices, to, from
  int64_t size;      // of the dim of `to`
  bool is_floating;  // its elements, so that NaN may say that there is no such index
  scalar::uint64_t value;
};

// Positions of some dims of `chosen`, by several index tensors of one shape; the other dims are
// whole.
inline constexpr int kMostIndices = 4;
struct IndexTensor {
  const void* data;
  bool is_long;        // i64, not i32
  int64_t step, size;  // of the dim that it chooses from
};
struct IndexTensors {
  IndexTensor indices[kMostIndices];
  int64_t count;                   // of them
  Walk<1 + kMostIndices> choices;  // in row-major order: `other`, indices
  Walk<2> part;                    // of each choice: `chosen`, `other`
  void* chosen;
  void* other;
  int32_t* links;  // of choices (links.h); null where elements are only read
  double factor;   // of what is added
  // `chosen` has floating elements, and one at least: NaN may say that there is no such position.
  bool has_nan;
};

}  // namespace dc::runtime::kernel::cuda
