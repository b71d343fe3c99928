// The parameters of the kernels of attention, for those who launch them too.
#pragma once

#include "runtime/kernel/cuda/kernels/row_parameters.h"
#include "runtime/kernel/scalar/language.h"

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

// The kernels on tensor cores: for 16-bit elements that lie next to each other in rows on 16 bytes,
// dims that are multiples of 16 up to this.
inline constexpr int kMostTensorDim = 128;
// On GPUs of compute capability 9.0 four warps multiply together, heads of 64 or 128 columns.
constexpr bool are_for_groups(int dim, int architecture) {
  return architecture == 90 && (dim == 64 || dim == 128);
}

// How far rows of a tile lie apart in shared memory, in bytes.
constexpr int tile_pitch(int dim, bool by_groups = false) {
  return by_groups ? 2 * dim : 2 * dim + 16;
}

// A block owns rows (queries, or keys for their gradients) and goes through tiles of the others, of
// which it has two in shared memory: one is copied while the other is multiplied.
struct TileShape {
  int warps, row_tiles;  // of a block; of a warp, 16 rows each
  int others, step;      // rows of a tile, and how many of them are multiplied at once
  int blocks;            // that a multiprocessor has registers for
  bool keeps_rows;       // as operands in registers
  bool by_groups;

  constexpr int rows() const { return warps * row_tiles * 16; }
  constexpr int threads() const { return warps * 32; }
  // Of shared memory; for so many tensors whose rows are owned.
  constexpr int bytes(int dim, int owned) const {
    return tile_pitch(dim, by_groups) * (owned * rows() + 2 * 2 * others);
  }
};
// The fastest of those that were tried on an H200.
constexpr TileShape forward_shape(int dim, bool by_groups = false) {
  if (by_groups) return TileShape{dim <= 64 ? 8 : 4, 1, 64, 64, 2, false, true};
  return dim <= 64 ? TileShape{4, 2, 64, 64, 2, true, false}
                   : TileShape{4, 2, 32, 32, 2, false, false};
}
constexpr TileShape key_shape(int dim) {
  return dim <= 64 ? TileShape{4, 2, 64, 32, 2, false, false}
                   : TileShape{8, 1, 64, 16, 1, true, false};
}
constexpr TileShape query_shape(int dim) {
  return dim <= 64 ? TileShape{4, 2, 64, 32, 2, true, false}
                   : TileShape{8, 1, 64, 32, 1, true, false};
}
// Bytes of shared memory.
constexpr int forward_stages(TileShape shape) { return shape.by_groups ? 3 : 2; }
constexpr int forward_bytes(int dim, TileShape shape) {
  return shape.bytes(dim, 1) +
         tile_pitch(dim, shape.by_groups) * (forward_stages(shape) - 2) * 2 * shape.others;
}
constexpr int query_bytes(int dim, TileShape shape) { return shape.bytes(dim, 2); }
constexpr int key_bytes(int dim, TileShape shape) {
  return shape.bytes(dim, 2) + 2 * 2 * shape.others * static_cast<int>(sizeof(float));
}

// One kernel for all gradients (GPUs of compute capability 9.0). A block owns tiles of keys and
// goes through tiles of queries, to whose gradients it adds in f32 when the blocks before it have:
// blocks are a chain, in the order of the numbers that they take when they begin. Where attention
// is causal a block owns two tiles, which have as much work as those of any other block; so there
// are two chains, of the later and of the earlier keys.
inline constexpr int kJointKeys = 128;  // of a tile
constexpr int joint_queries(int dim) { return dim <= 64 ? 128 : 64; }
constexpr int joint_stages(int dim) { return dim <= 64 ? 3 : 2; }  // tiles of queries at once
// Eight warps multiply; of the last four, which have few registers, one adds to the gradients of
// queries, two copy tiles.
inline constexpr int kJointMultipliers = 8 * 32, kJointCopiers = 2 * 32, kJointThreads = 12 * 32;

struct JointGradients {
  int query_tiles, key_tiles;
  float* of_query;  // [chains, batch, heads, tiles of queries], of each what its threads have
  // The next number, then [chains, batch, heads, tiles of queries]: how many blocks have added.
  uint32_t* turns;
  int64_t turn_count;

  // Blocks that share a head.
  static constexpr int blocks(int tiles, bool is_causal) {
    return is_causal ? (tiles + 1) / 2 : tiles;
  }
  static constexpr int chains(bool is_causal) { return is_causal ? 2 : 1; }
};
// Bytes of shared memory: keys and values; tiles of queries and gradients of results, with sums and
// deltas; gradients of scores, of two tiles; gradients of queries.
constexpr int joint_bytes(int dim) {
  return kJointKeys * 2 * 2 * dim +
         joint_queries(dim) *
             (joint_stages(dim) * (2 * 2 * dim + 2 * 4) + 2 * 2 * kJointKeys + 4 * dim);
}

// Queries of each head are counted up to a multiple of this, so that tiles are whole.
inline constexpr int kPaddedQueries = 128;
inline constexpr int kThreadsPerDelta = 4;
struct TensorAttentionBackward {
  AttentionBackward all;  // its deltas are [batch, heads, padded queries]
  int padded_queries;
  // Of each query the logarithm of the sum, to base 2 if there is no mask; infinity hides it.
  float* sums;
  // Each group of the heads that share keys gives a part of the gradients, [groups, batch, heads of
  // keys, keys, dim]. No parts: there is one group.
  int groups;
  float *of_key, *of_value;
  JointGradients joint;  // where one kernel makes all of them
};
// Blocks that are enough for every GPU: results must not depend on which it is. Of the kernel for
// all gradients a multiprocessor has one block; so many multiprocessors an H100 or H200 has.
inline constexpr int kEnoughBlocks = 512, kJointBlocks = 132;

}  // namespace dc::runtime::kernel::cuda
