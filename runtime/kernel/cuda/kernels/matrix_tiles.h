// Tiles of 16-bit elements in shared memory, and products of their rows on tensor cores.
#pragma once

#include "runtime/kernel/cuda/kernels/attention_parameters.h"
#include "runtime/kernel/cuda/kernels/warp.h"

namespace dc::runtime::kernel::cuda {

// Bytes from a row of a tile to the next: 16 more than it has, so that 8 rows lie in different
// banks (a row has an even number of 16 bytes).
template <int kDim>
inline constexpr int kPitch = tile_pitch(kDim);

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

// The block's threads begin to copy kRows rows from `first` on; those that do not exist are zeros.
template <int kRows, int kDim, int kThreads, typename T>
inline void copy_rows(SharedPlace tile, const HeadRows<T>& from, int first, int rows) {
  constexpr int kWords = kDim / 8;
#pragma unroll
  for (int begin = 0; begin < kRows * kWords; begin += kThreads) {
    const int i = begin + static_cast<int>(threadIdx.x), row = i / kWords, word = i % kWords;
    if (kRows * kWords % kThreads != 0 && i >= kRows * kWords) break;
    const bool exists = first + row < rows;
    copy_16(tile + row * kPitch<kDim> + word * 16, from.at(exists ? first + row : 0) + word * 8,
            exists);
  }
}

// Where a thread's row lies of the four matrices of 16 rows and columns of a tile: as a left
// operand (load_matrices) or as a right one whose rows are terms (load_transposed),
template <int kDim>
inline SharedPlace by_rows(SharedPlace tile) {
  return tile + lane() % 16 * kPitch<kDim> + lane() / 16 * 16;
}
// and as a right operand whose rows are columns of the product (load_matrices).
template <int kDim>
inline SharedPlace by_columns(SharedPlace tile) {
  return tile + (lane() / 16 * 8 + lane() % 8) * kPitch<kDim> + lane() / 8 % 2 * 16;
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

// A warp's left operand: 16 kRowTiles rows of a tile, kDim columns, kept in registers or read from
// the tile whenever they are needed.
template <int kRowTiles, int kDim, bool kInRegisters>
struct LeftRows {
  uint32_t matrices[kInRegisters ? kDim / 16 : 1][kRowTiles][4];
  SharedPlace place;

  explicit LeftRows(SharedPlace tile)
      : place(by_rows<kDim>(tile + warp() * 16 * kRowTiles * kPitch<kDim>)) {}
  using Rows = uint32_t[kRowTiles][4];
  // Of 16 columns.
  const Rows& rows(int k) {
    if constexpr (!kInRegisters) read(matrices[0], k);
    return matrices[kInRegisters ? k : 0];
  }
  // Once the tile has been copied.
  void keep() {
    if constexpr (kInRegisters) {
#pragma unroll
      for (int k = 0; k < kDim / 16; ++k) read(matrices[k], k);
    }
  }

 private:
  void read(Rows& to, int k) const {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
      load_matrices(to[r], place + r * 16 * kPitch<kDim> + k * 32);
  }
};

// sums = left right^T, where `right` is by_columns() of the first of 8 kColumnTiles rows.
template <typename T, int kRowTiles, int kColumnTiles, int kDim, bool kInRegisters>
inline void multiply_by_rows(Sums<kRowTiles, kColumnTiles>& sums,
                             LeftRows<kRowTiles, kDim, kInRegisters>& left, SharedPlace right) {
  clear_sums<kRowTiles, kColumnTiles>(sums);
#pragma unroll
  for (int k = 0; k < kDim / 16; ++k) {
    const auto& rows = left.rows(k);
#pragma unroll
    for (int c = 0; c < kColumnTiles; c += 2) {
      uint32_t columns[4];
      load_matrices(columns, right + c * 8 * kPitch<kDim> + k * 32);
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        multiply_add<T>(sums[r][c], rows[r], columns[0], columns[1]);
        multiply_add<T>(sums[r][c + 1], rows[r], columns[2], columns[3]);
      }
    }
  }
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

// sums += left right, where `right` is by_rows() of the first of 16 kTerms rows.
template <typename T, int kDim, int kRowTiles, int kTerms>
inline void add_terms(Sums<kRowTiles, kDim / 8>& sums, const uint32_t (&left)[kTerms][kRowTiles][4],
                      SharedPlace right) {
#pragma unroll
  for (int k = 0; k < kTerms; ++k)
#pragma unroll
    for (int c = 0; c < kDim / 8; c += 2) {
      uint32_t columns[4];
      load_transposed(columns, right + k * 16 * kPitch<kDim> + c * 16);
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        multiply_add<T>(sums[r][c], left[k][r], columns[0], columns[1]);
        multiply_add<T>(sums[r][c + 1], left[k][r], columns[2], columns[3]);
      }
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

}  // namespace dc::runtime::kernel::cuda
