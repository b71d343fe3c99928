// Products of bf16 numbers by the tiles of AMX. It includes nothing with inline functions of the
// standard library, as multiply_tiles.h says.
#include <immintrin.h>

#include "runtime/kernel/native/attention/multiply.h"

namespace dc::runtime::kernel::native {
namespace {

constexpr int64_t kRows = 16;   // of a tile, of 64 bytes each
constexpr int64_t kGroup = 4;   // tiles of c that are summed at once
constexpr int64_t kBlocks = 8;  // of kPairDepth, that are packed at once
constexpr int64_t kPanel = 32;  // tiles of b that are packed at once

// Of one operand: 16 rows of 16 pairs of bf16. The pair is of neighbours in k; a row is one of a,
// and two rows of b.
struct alignas(64) Tile {
  uint32_t pairs[kRows][16];
};

struct alignas(64) Configuration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {};  // of a row
  uint8_t rows[16] = {};
};

// The upper halves of 16 floats, where the k before them is `low`.
__m512i pairs_of(__m512i low, __m512i high) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  return _mm512_or_si512(_mm512_srli_epi32(low, 16), _mm512_and_si512(high, upper));
}
__m512i row_of(const float* from, int64_t row, int64_t stride, int64_t rows) {
  return row < rows ? _mm512_loadu_si512(from + row * stride) : _mm512_setzero_si512();
}

// Rows [0, depth) of `from`, of 16 floats each, as pairs of rows.
void pack_pairs(Tile& to, const float* from, int64_t stride, int64_t depth) {
  for (int64_t k = 0; k < kRows; ++k)
    _mm512_store_si512(to.pairs[k], pairs_of(row_of(from, 2 * k, stride, depth),
                                             row_of(from, 2 * k + 1, stride, depth)));
}

// Rows [0, rows) of `from`, `depth` floats each.
void pack_rows(Tile& to, const float* from, int64_t stride, int64_t rows, int64_t depth) {
  const auto low = static_cast<__mmask16>(depth < 16 ? (1u << depth) - 1 : 0xffffu);
  const auto high = static_cast<__mmask16>(depth < 16   ? 0
                                           : depth < 32 ? (1u << (depth - 16)) - 1
                                                        : 0xffffu);
  for (int64_t i = 0; i < kRows; ++i) {
    __m512i both = _mm512_setzero_si512();
    if (i < rows) {
      const float* row = from + i * stride;
      const __m512i first = _mm512_maskz_loadu_epi32(low, row);
      const __m512i second =
          high == 0 ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi32(high, row + 16);
      both = _mm512_inserti64x4(
          _mm512_castsi256_si512(_mm512_cvtepi32_epi16(_mm512_srli_epi32(first, 16))),
          _mm512_cvtepi32_epi16(_mm512_srli_epi32(second, 16)), 1);
    }
    _mm512_store_si512(to.pairs[i], both);
  }
}

// Rows and columns of 16 words change places.
void transpose(Tile& tile) {
  __m512i r[16], t[16];
  for (int i = 0; i < 16; ++i) r[i] = _mm512_load_si512(tile.pairs[i]);
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  // Of four rows, in each quarter of a vector: columns 0, 1, 2 and 3.
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    const __m512i even = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88),
                  odd = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd),
                  more_even = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88),
                  more_odd = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    _mm512_store_si512(tile.pairs[i], _mm512_shuffle_i32x4(even, more_even, 0x88));
    _mm512_store_si512(tile.pairs[i + 4], _mm512_shuffle_i32x4(odd, more_odd, 0x88));
    _mm512_store_si512(tile.pairs[i + 8], _mm512_shuffle_i32x4(even, more_even, 0xdd));
    _mm512_store_si512(tile.pairs[i + 12], _mm512_shuffle_i32x4(odd, more_odd, 0xdd));
  }
}

// A tile of a: rows from `row`, depth from `first`.
void pack_left(Tile& to, const SmallProduct& p, int64_t row, int64_t first, int64_t depth) {
  const float* from = p.a + row * p.a_row + first * p.a_column;
  const int64_t rows = p.rows - row < kRows ? p.rows - row : kRows;
  if (p.a_column == 1) return pack_rows(to, from, p.a_row, rows, depth);
  if (rows == kRows) {
    pack_pairs(to, from, p.a_column, depth);
  } else {
    float padded[kPairDepth][kRows] = {};
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t i = 0; i < rows; ++i) padded[k][i] = from[k * p.a_column + i];
    }
    pack_pairs(to, padded[0], kRows, depth);
  }
  transpose(to);
}

// The next `tiles` tiles of a row of c, which lie one behind the other: the sums of a's tiles and
// b's over the blocks, whose tiles of b are `apart`.
void sum_up(float* c, int64_t c_row, int64_t tiles, bool adds, const Tile* a, const Tile* b,
            int64_t blocks, int64_t apart) {
  const int64_t stride = 4 * c_row;  // bytes
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  if (adds) {
    _tile_loadd(0, c, stride);
    if (tiles > 1) _tile_loadd(1, c + 16, stride);
    if (tiles > 2) _tile_loadd(2, c + 32, stride);
    if (tiles > 3) _tile_loadd(3, c + 48, stride);
  }
  for (int64_t block = 0; block < blocks; ++block, ++a, b += apart) {
    _tile_loadd(4, a->pairs, 64);
    _tile_loadd(5, b[0].pairs, 64);
    _tile_dpbf16ps(0, 4, 5);
    if (tiles > 1) {
      _tile_loadd(6, b[1].pairs, 64);
      _tile_dpbf16ps(1, 4, 6);
    }
    if (tiles > 2) {
      _tile_loadd(7, b[2].pairs, 64);
      _tile_dpbf16ps(2, 4, 7);
    }
    if (tiles > 3) {
      _tile_loadd(5, b[3].pairs, 64);
      _tile_dpbf16ps(3, 4, 5);
    }
  }
  _tile_stored(0, c, stride);
  if (tiles > 1) _tile_stored(1, c + 16, stride);
  if (tiles > 2) _tile_stored(2, c + 32, stride);
  if (tiles > 3) _tile_stored(3, c + 48, stride);
}

// The same of fewer than kRows rows, through a copy of them.
void sum_up_part(float* c, int64_t c_row, int64_t rows, int64_t tiles, bool adds, const Tile* a,
                 const Tile* b, int64_t blocks, int64_t apart) {
  constexpr int64_t kWidth = kGroup * 16;
  alignas(64) float copy[kRows][kWidth] = {};
  for (int64_t i = 0; adds && i < rows; ++i) {
    for (int64_t j = 0; j < tiles; ++j)
      _mm512_store_ps(copy[i] + 16 * j, _mm512_loadu_ps(c + i * c_row + 16 * j));
  }
  sum_up(copy[0], kWidth, tiles, adds, a, b, blocks, apart);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < tiles; ++j)
      _mm512_storeu_ps(c + i * c_row + 16 * j, _mm512_load_ps(copy[i] + 16 * j));
  }
}

}  // namespace

void multiply_bf16_amx(const SmallProduct& p) {
  Configuration configuration;
  for (int tile = 0; tile < 8; ++tile)
    configuration.rows[tile] = kRows, configuration.bytes[tile] = 64;
  _tile_loadconfig(&configuration);
  Tile left[kBlocks], right[kPanel];
  // Without depth too c is written.
  for (int64_t first = 0; first == 0 || first < p.depth; first += kBlocks * kPairDepth) {
    const int64_t longest = kBlocks * kPairDepth;
    const int64_t depth = p.depth - first < longest ? p.depth - first : longest;
    const int64_t blocks = (depth + kPairDepth - 1) / kPairDepth;
    const auto depth_of = [&](int64_t block) {
      const int64_t rest = depth - block * kPairDepth;
      return rest < kPairDepth ? rest : kPairDepth;
    };
    const int64_t most = blocks == 0 ? kPanel : kPanel / blocks;
    for (int64_t column = 0; column < p.columns; column += 16 * most) {
      const int64_t rest = (p.columns - column) / 16, tiles = rest < most ? rest : most;
      for (int64_t block = 0; block < blocks; ++block) {
        for (int64_t tile = 0; tile < tiles; ++tile)
          pack_pairs(right[block * tiles + tile],
                     p.b + (first + block * kPairDepth) * p.b_row + column + 16 * tile, p.b_row,
                     depth_of(block));
      }
      for (int64_t row = 0; row < p.rows; row += kRows) {
        for (int64_t block = 0; block < blocks; ++block)
          pack_left(left[block], p, row, first + block * kPairDepth, depth_of(block));
        const int64_t rows = p.rows - row < kRows ? p.rows - row : kRows;
        for (int64_t tile = 0; tile < tiles; tile += kGroup) {
          const int64_t group = tiles - tile < kGroup ? tiles - tile : kGroup;
          float* c = p.c + row * p.c_row + column + 16 * tile;
          const bool adds = p.adds || first > 0;
          if (rows == kRows) {
            sum_up(c, p.c_row, group, adds, left, right + tile, blocks, tiles);
          } else {
            sum_up_part(c, p.c_row, rows, group, adds, left, right + tile, blocks, tiles);
          }
        }
      }
    }
  }
  _tile_release();
}

}  // namespace dc::runtime::kernel::native
