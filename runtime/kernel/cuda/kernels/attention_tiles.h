// Tiles of attention: kAttentionTile queries with as many keys, by 256 threads in 16 rows and 16
// columns. Thread (y, x) has the elements of rows y + 16 i and columns x + 16 j of a product. Tiles
// of operands are in shared memory, kAttentionChunk columns of them at a time; products are summed
// in f32, element by element in the order of columns.
#pragma once

#include "runtime/kernel/cuda/kernels/attention_parameters.h"
#include "runtime/kernel/cuda/kernels/blocks.h"
#include "runtime/kernel/cuda/kernels/numbers.h"
#include "runtime/kernel/scalar/math.h"

namespace dc::runtime::kernel::cuda {

inline constexpr int kTile = kAttentionTile, kChunk = kAttentionChunk, kSide = 16,
                     kPart = kTile / kSide;
static_assert(kSide * kSide == kBlockThreads && kChunk % kSide == 0);

// A row has one element more, so that the rows of a column lie in different banks.
using ChunkTile = float[kTile][kChunk + 1];
using ScoreTile = float[kTile][kTile + 1];
// What a thread has of a tile of scores, or of kDim columns of results.
using ScorePart = float[kPart][kPart];
template <int kDim>
using ResultPart = float[kPart][kDim / kSide];

// Rows of one head.
template <typename T>
struct HeadPart {
  HeadPart(const HeadTensor& tensor, int64_t batch, int64_t head)
      : data(static_cast<T*>(tensor.data) + batch * tensor.batch + head * tensor.head),
        row(tensor.row),
        column(tensor.column) {}
  T& at(int64_t r, int64_t c) const { return data[r * row + c * column]; }
  T* data;
  int64_t row, column;
};

// The block's threads read kTile rows, kChunk columns; what there is not is zero.
template <typename T>
inline void read_chunk(ChunkTile& to, const HeadPart<T>& from, int64_t first_row, int64_t rows,
                       int64_t first_column, int64_t columns) {
  const int column = static_cast<int>(threadIdx.x) % kChunk;
  for (int row = static_cast<int>(threadIdx.x) / kChunk; row < kTile;
       row += static_cast<int>(kBlockThreads) / kChunk) {
    const bool exists = first_row + row < rows && first_column + column < columns;
    to[row][column] = exists ? scalar::load(from.at(first_row + row, first_column + column)) : 0.0f;
  }
}

inline int tile_y() { return static_cast<int>(threadIdx.x) / kSide; }
inline int tile_x() { return static_cast<int>(threadIdx.x) % kSide; }

// sums[i][j] = sum over the columns of left row x right row, for tiles of rows that begin there.
template <typename T>
inline void multiply_rows(ScorePart& sums, ChunkTile& left, ChunkTile& right,
                          const HeadPart<T>& left_rows, int64_t left_first, int64_t left_count,
                          const HeadPart<T>& right_rows, int64_t right_first, int64_t right_count,
                          int64_t columns) {
  const int y = tile_y(), x = tile_x();
  for (int i = 0; i < kPart; ++i)
    for (int j = 0; j < kPart; ++j) sums[i][j] = 0;
  for (int64_t first = 0; first < columns; first += kChunk) {
    __syncthreads();
    read_chunk(left, left_rows, left_first, left_count, first, columns);
    read_chunk(right, right_rows, right_first, right_count, first, columns);
    __syncthreads();
    for (int k = 0; k < kChunk; ++k) {
      float a[kPart], b[kPart];
      for (int i = 0; i < kPart; ++i) a[i] = left[y + kSide * i][k];
      for (int j = 0; j < kPart; ++j) b[j] = right[x + kSide * j][k];
      for (int i = 0; i < kPart; ++i)
        for (int j = 0; j < kPart; ++j) sums[i][j] = scalar::fma(a[i], b[j], sums[i][j]);
    }
  }
}

// results += scores x rows, or the transposed scores x rows. Columns of rows that begin there.
template <bool kTransposes, int kDim, typename T>
inline void add_product(ResultPart<kDim>& results, const ScoreTile& scores, ChunkTile& right,
                        const HeadPart<T>& rows, int64_t first_row, int64_t row_count,
                        int64_t columns) {
  constexpr int kColumns = kChunk / kSide;
  const int y = tile_y(), x = tile_x();
#pragma unroll
  for (int chunk = 0; chunk < kDim / kChunk; ++chunk) {
    if (int64_t{chunk} * kChunk >= columns) continue;
    __syncthreads();
    read_chunk(right, rows, first_row, row_count, int64_t{chunk} * kChunk, columns);
    __syncthreads();
    for (int k = 0; k < kTile; ++k) {
      float b[kColumns];
      for (int j = 0; j < kColumns; ++j) b[j] = right[k][x + kSide * j];
      for (int i = 0; i < kPart; ++i) {
        const float a = kTransposes ? scores[k][y + kSide * i] : scores[y + kSide * i][k];
        for (int j = 0; j < kColumns; ++j) {
          float& sum = results[i][chunk * kColumns + j];
          sum = scalar::fma(a, b[j], sum);
        }
      }
    }
  }
}

template <int kDim>
inline void clear(ResultPart<kDim>& results) {
  for (int i = 0; i < kPart; ++i)
    for (int c = 0; c < kDim / kSide; ++c) results[i][c] = 0;
}

// f(row of the tile, column, result)
template <int kDim, typename F>
inline void for_each_result(ResultPart<kDim>& results, F f) {
#pragma unroll
  for (int c = 0; c < kDim / kSide; ++c)
    for (int i = 0; i < kPart; ++i) f(tile_y() + kSide * i, tile_x() + kSide * c, results[i][c]);
}

template <int kDim, typename T>
inline void write_rows(ResultPart<kDim>& results, const HeadPart<T>& to, int64_t first,
                       int64_t count, int64_t columns) {
  for_each_result<kDim>(results, [&](int row, int column, float value) {
    if (first + row < count && column < columns)
      to.at(first + row, column) = scalar::store<T>(value);
  });
}

// Which keys a query sees, and what is added to its scores.
struct Scores {
  Scores(const Attention& parameters, int64_t batch, int64_t head)
      : of(parameters), mask(batch * parameters.mask_batch + head * parameters.mask_head) {}
  bool sees(int64_t query, int64_t key) const {
    return query < of.queries && key < of.keys && (!of.is_causal || key <= query);
  }
  float score(float product, int64_t query, int64_t key) const {
    const float scaled = product * of.scale;
    if (of.mask.data == nullptr) return scaled;
    return scaled + number_at<float>(of.mask, mask + query * of.mask_row + key * of.mask_column);
  }
  // Behind the last key that a query of the tile sees.
  int64_t end_of_keys(int64_t first_query) const {
    const int64_t end = first_query + kTile;
    return of.is_causal && end < of.keys ? end : of.keys;
  }

  const Attention& of;
  int64_t mask;  // place of the head's first element
};

}  // namespace dc::runtime::kernel::cuda
