// Tiles whose rows each warp multiplies alone, as it comes to them: GPUs of compute capability 8.0
// and later.
#pragma once

#include "runtime/kernel/cuda/kernels/matrix_tiles.h"

namespace dc::runtime::kernel::cuda {

// Bytes from a row of a tile to the next: 16 more than it has, so that 8 rows lie in different
// banks (a row has an even number of 16 bytes).
template <int kDim>
inline constexpr int kPitch = tile_pitch(kDim);

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

template <int kDim>
struct Tiles<kDim, false> {
  static constexpr int kRowPitch = kPitch<kDim>;
  template <int kRows, int kRowTiles, bool kKeeps>
  using Left = LeftRows<kRowTiles, kDim, kKeeps>;

  // The block's threads begin to copy kRows rows from `first` on; those that do not exist are
  // zeros.
  template <int kRows, int kThreads, typename T>
  static void copy(SharedPlace tile, const HeadRows<T>& from, int first, int rows) {
    for_each_word<kRows, kDim, kThreads>([&](int row, int word) {
      const bool exists = first + row < rows;
      copy_16(tile + row * kRowPitch + word * 16, from.at(exists ? first + row : 0) + word * 8,
              exists);
    });
  }
  // sums = left right^T: 8 kColumnTiles rows of a tile of kRows, from `first` on.
  template <typename T, int kRows, int kRowTiles, int kColumnTiles, bool kKeeps>
  static void multiply(Sums<kRowTiles, kColumnTiles>& sums, LeftRows<kRowTiles, kDim, kKeeps>& left,
                       SharedPlace tile, int first) {
    const SharedPlace right = by_columns<kDim>(tile + first * kRowPitch);
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
  // sums += left right: 16 kTerms rows of a tile.
  template <typename T, int kRows, int kRowTiles, int kTerms>
  static void add(Sums<kRowTiles, kDim / 8>& sums, const uint32_t (&left)[kTerms][kRowTiles][4],
                  SharedPlace tile, int first) {
    const SharedPlace right = by_rows<kDim>(tile + first * kRowPitch);
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

  // Products are made where they are asked for: there is nothing to wait for.
  template <typename... Registers>
  static void begin(Registers&...) {}
  static void end() {}
  template <int kLeft, typename... Registers>
  static void wait(Registers&...) {}
  static void show_copies() {}
};

}  // namespace dc::runtime::kernel::cuda
