// Tiles whose rows four warps multiply together while their threads go on: GPUs of compute
// capability 9.0.
#pragma once

#include "runtime/kernel/cuda/kernels/matrix_tiles.h"
#include "runtime/kernel/cuda/kernels/warpgroup.h"

namespace dc::runtime::kernel::cuda {

inline int own_four_warps() { return same_in_warp(warp() / 4); }

// Left operands: 64 rows of each four warps, of a tile of kRows. They are read from shared memory
// by each product: ptxas 13.0 overwrites registers of left operands that outlive a product of a
// loop.
template <int kRows>
struct GroupRows {
  SharedPlace place;
  explicit GroupRows(SharedPlace tile)
      : place(tile + own_four_warps() * kGroupRows * kPanelPitch) {}
  void keep() {}
};

// A tile has panels of 64 columns: kRows rows of 128 bytes each.
template <int kDim>
struct Tiles<kDim, true> {
  static_assert(kDim % kPanelColumns == 0);
  static constexpr int kRowPitch = 2 * kDim;
  template <int kRows, int kRowTiles, bool kKeeps>
  using Left = GroupRows<kRows>;

  template <int kRows, int kThreads, typename T>
  static void copy(SharedPlace tile, const HeadRows<T>& from, int first, int rows) {
    for_each_word<kRows, kDim, kThreads>([&](int row, int word) {
      const bool exists = first + row < rows;
      copy_16(tile + word / 8 * panel(kRows) + row * kPanelPitch + ((word % 8) ^ (row % 8)) * 16,
              from.at(exists ? first + row : 0) + word * 8, exists);
    });
  }
  // Of 64 columns each.
  template <typename T, int kTileRows, int kColumnTiles, int kRows>
  static void multiply(Sums<1, kColumnTiles>& sums, const GroupRows<kRows>& left, SharedPlace tile,
                       int first) {
    const MatrixPlace rows = rows_at(left.place), columns = rows_at(tile + first * kPanelPitch);
#pragma unroll
    for (int c = 0; c < kColumnTiles; c += kPanelColumns / 8)
#pragma unroll
      for (int k = 0; k < kDim / 16; ++k)
        begin_product<T>(part(sums, c), further(rows, term(kRows, k)),
                         further(columns, c * 8 * kPanelPitch + term(kTileRows, k)), k > 0);
  }
  template <typename T, int kTileRows, int kTerms>
  static void add(Sums<1, kDim / 8>& sums, const uint32_t (&left)[kTerms][1][4], SharedPlace tile,
                  int first) {
    const MatrixPlace rows = rows_at(tile + first * kPanelPitch);
#pragma unroll
    for (int c = 0; c < kDim / 8; c += kPanelColumns / 8)
#pragma unroll
      for (int k = 0; k < kTerms; ++k)
        begin_product<T>(
            part(sums, c), left[k][0],
            further(rows, c * 8 / kPanelColumns * panel(kTileRows) + k * 16 * kPanelPitch));
  }

  // sums = left right: 64 rows of the product from a panel, kTerms rows of it and of a tile's
  // panel.
  template <typename T, int kTerms>
  static void multiply_terms(Sums<1, kPanelColumns / 8>& sums, SharedPlace left,
                             SharedPlace right) {
    const MatrixPlace rows = rows_at(left), terms = rows_at(right);
#pragma unroll
    for (int k = 0; k < kTerms / 16; ++k)
      begin_product_of_terms<T>(part(sums, 0), further(rows, k * 16 * kPanelPitch),
                                further(terms, k * 16 * kPanelPitch), k > 0);
  }
  // A product's part of each warp, 16 rows, to 64 columns of a panel.
  static void store(const uint32_t (&from)[4][1][4], SharedPlace rows) {
    const int row = lane() % 16;
#pragma unroll
    for (int k = 0; k < 4; ++k)
      store_matrices(rows + row * kPanelPitch + ((2 * k + lane() / 16) ^ (row % 8)) * 16,
                     from[k][0]);
  }

  // Around products that complete together: before the first one all registers that they use are
  // named, and again where they are waited for.
  template <typename... Registers>
  static void begin(Registers&... registers) {
    (hold(registers), ...);
    begin_products();
  }
  static void end() { end_products(); }
  template <int kLeft, typename... Registers>
  static void wait(Registers&... registers) {
    wait_for_products<kLeft>();
    (hold(registers), ...);
  }
  static void show_copies() { cuda::show_copies(); }

 private:
  static constexpr int panel(int rows) { return rows * kPanelPitch; }
  // Where 16 columns of rows begin.
  static constexpr int term(int rows, int k) { return k / 4 * panel(rows) + k % 4 * 32; }
  template <int kColumnTiles>
  static float (&part(Sums<1, kColumnTiles>& sums, int c))[8][4] {
    return reinterpret_cast<float(&)[8][4]>(sums[0][c]);
  }
};

}  // namespace dc::runtime::kernel::cuda
