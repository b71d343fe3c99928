// Products of tiles of 16-bit elements on tensor cores: what warps have of them in registers, and
// where rows lie in memory. Tiles in shared memory are those of warp_tiles.h or group_tiles.h.
#pragma once

#include "runtime/kernel/cuda/kernels/attention_parameters.h"
#include "runtime/kernel/cuda/kernels/warp.h"

namespace dc::runtime::kernel::cuda {

inline int lane() { return static_cast<int>(threadIdx.x) % 32; }
inline int warp() { return static_cast<int>(threadIdx.x) / 32; }

// Rows of one head, whose elements lie next to each other.
template <typename T>
struct HeadRows {
  HeadRows(const HeadTensor& tensor, int64_t batch, int64_t head)
      : data(static_cast<T*>(tensor.data) + batch * tensor.batch + head * tensor.head),
        row(static_cast<int>(tensor.row)) {}
  T* at(int r) const { return data + static_cast<int64_t>(r) * row; }
  T* data;
  int row;
};

// f(row, word) for the thread's words of 16 bytes of a tile.
template <int kRows, int kDim, int kThreads, typename F>
inline void for_each_word(F f) {
  constexpr int kWords = kDim / 8, kAll = kRows * kWords;
#pragma unroll
  for (int begin = 0; begin < kAll; begin += kThreads) {
    const int i = begin + static_cast<int>(threadIdx.x);
    if (kAll % kThreads == 0 || i < kAll) f(i / kWords, i % kWords);
  }
}

// Of 16 kRowTiles rows and 8 kColumnTiles columns.
template <int kRowTiles, int kColumnTiles>
using Sums = float[kRowTiles][kColumnTiles][4];

template <int kRowTiles, int kColumnTiles>
inline void clear_sums(Sums<kRowTiles, kColumnTiles>& sums) {
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[r][c][i] = 0;
}

// A product as a left operand.
template <int kRowTiles, int kColumnTiles>
using Packed = uint32_t[kColumnTiles / 2][kRowTiles][4];

template <typename T, int kRowTiles, int kColumnTiles>
inline void pack_sums(Packed<kRowTiles, kColumnTiles>& to,
                      const Sums<kRowTiles, kColumnTiles>& from) {
#pragma unroll
  for (int k = 0; k < kColumnTiles / 2; ++k)
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&two)[4] = from[r][2 * k + i / 2];
        to[k][r][i] = pack<T>(two[i % 2 * 2], two[i % 2 * 2 + 1]);
      }
}

// The row of a thread among a warp's, and its first column, of part (r, c) of a product.
inline int row_in_tile(int r, int half) { return r * 16 + half * 8 + lane() / 4; }
inline int column_in_tile(int c) { return c * 8 + lane() % 4 * 2; }

// f(r, half, c, first, second) for the thread's elements, two neighbouring columns at a time
template <int kRowTiles, int kColumnTiles, typename F>
inline void for_each_pair(Sums<kRowTiles, kColumnTiles>& sums, F f) {
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int c = 0; c < kColumnTiles; ++c)
        f(r, half, c, sums[r][c][2 * half], sums[r][c][2 * half + 1]);
}

// Rows from `first` on that exist, times a factor.
template <typename T, int kRowTiles, int kColumnTiles>
inline void write_sums(Sums<kRowTiles, kColumnTiles>& sums, const HeadRows<T>& to, int first,
                       int rows, float factor) {
  for_each_pair<kRowTiles, kColumnTiles>(sums, [&](int r, int half, int c, float a, float b) {
    const int row = first + row_in_tile(r, half);
    if (row < rows)
      *reinterpret_cast<uint32_t*>(to.at(row) + column_in_tile(c)) =
          pack<T>(a * factor, b * factor);
  });
}

// Tiles in shared memory and their products, of one warp or of four (kByGroups) together.
template <int kDim, bool kByGroups>
struct Tiles;

}  // namespace dc::runtime::kernel::cuda
