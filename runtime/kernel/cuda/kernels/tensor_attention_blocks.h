// What the kernels of attention on tensor cores share: which rows a block has, and how scores
// follow from products.
#pragma once

#include "runtime/kernel/cuda/kernels/blocks.h"
#include "runtime/kernel/cuda/kernels/group_tiles.h"
#include "runtime/kernel/cuda/kernels/numbers.h"
#include "runtime/kernel/cuda/kernels/warp_tiles.h"
#include "runtime/kernel/scalar/math.h"

namespace dc::runtime::kernel::cuda {

inline constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

// From products to scores and their powers. Without a mask a product is its own score, and a factor
// makes it one to base 2. With one scores are to base e until the largest is taken off: to base 2
// the lowest number of a type, by which masks hide keys, would be minus infinity.
template <bool kHasMask>
struct TensorScores {
  TensorScores(const Attention& parameters, int64_t batch, int64_t head)
      : of(parameters), mask(batch * parameters.mask_batch + head * parameters.mask_head) {}
  float score(float product, int query, int key) const {
    if constexpr (!kHasMask) return product;
    if (query >= of.queries || key >= of.keys) return 0;
    const float added =
        number_at<float>(of.mask, mask + query * of.mask_row + key * of.mask_column);
    return product * of.scale + added;
  }
  float factor() const { return of.scale * kLog2E; }
  // What power() takes off scores, so that this one's is 1.
  float origin(float score) const { return kHasMask ? score : score * factor(); }
  float power(float score, float origin) const {
    return exp2_fast(kHasMask ? (score - origin) * kLog2E : scalar::fma(score, factor(), -origin));
  }
  // The logarithm of a sum of scores' powers, of which origin(largest) was taken off.
  float log_of_sum(float largest, float sum) const {
    return (kHasMask ? largest : largest * factor() * kLn2) + scalar::math::log(sum);
  }
  bool sees(int query, int key) const { return key < of.keys && (!of.is_causal || key <= query); }
  // Whether each of these queries sees each of these keys.
  bool all_see(int first_query, int end_of_keys) const {
    return end_of_keys <= of.keys && (!of.is_causal || end_of_keys <= first_query + 1);
  }

  const Attention& of;
  int64_t mask;
};

// Queries of a block, or keys: the tiles with the most work come first.
struct BlockPlace {
  int first, batch, head;
  BlockPlace(int64_t length, int rows, int64_t heads, bool last_first) {
    const int tiles = static_cast<int>((length + rows - 1) / rows);
    const int all = static_cast<int>(gridDim.x) / tiles, tile = static_cast<int>(blockIdx.x) / all,
              rest = static_cast<int>(blockIdx.x) % all;
    first = (last_first ? tiles - 1 - tile : tile) * rows;
    batch = rest / static_cast<int>(heads);
    head = rest % static_cast<int>(heads);
  }
};

// The first row of those that the thread's warp owns.
template <TileShape kShape>
inline int own_rows(int first) {
  return first + warp() * kShape.row_tiles * 16;
}

// A warp's gradients of keys and values, whose first row is `own`; or a group's part of them.
template <typename T, int kDim, int kRowTiles>
inline void write_key_gradients(const TensorAttentionBackward& parameters,
                                Sums<kRowTiles, kDim / 8>& of_key,
                                Sums<kRowTiles, kDim / 8>& of_value, int batch, int key_head,
                                int group, int own) {
  const AttentionBackward& all = parameters.all;
  const Attention& of = all.of;
  const int key_count = static_cast<int>(of.keys);
  if (parameters.groups == 1) {
    if (all.of_key.data != nullptr)
      write_sums(of_key, HeadRows<T>(all.of_key, batch, key_head), own, key_count, of.scale);
    if (all.of_value.data != nullptr)
      write_sums(of_value, HeadRows<T>(all.of_value, batch, key_head), own, key_count, 1);
    return;
  }
  const int64_t key_heads = of.heads / of.heads_per_key,
                part = ((group * of.batch + batch) * key_heads + key_head) * key_count * kDim;
  const auto write_part = [&](Sums<kRowTiles, kDim / 8>& from, float* to, float factor) {
    for_each_pair<kRowTiles, kDim / 8>(from, [&](int r, int half, int c, float a, float b) {
      const int row = own + row_in_tile(r, half);
      if (row >= key_count) return;
      float* const at = to + part + int64_t{row} * kDim + column_in_tile(c);
      at[0] = a * factor;
      at[1] = b * factor;
    });
  };
  write_part(of_key, parameters.of_key, of.scale);
  write_part(of_value, parameters.of_value, 1);
}

}  // namespace dc::runtime::kernel::cuda
