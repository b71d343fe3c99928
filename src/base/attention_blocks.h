// The blocks in which native attention works, and the scratch memory that they take: the kernels
// and the compiler's estimate agree by this header.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "src/base/checked.h"
#include "src/base/units.h"

namespace dc::base {

inline constexpr int64_t kQueryBlock = 48;  // rows: a multiple of a tile's
inline constexpr int64_t kKeyBlock = 256;   // columns
inline constexpr int64_t kAttentionLanes = 16;

// Elements, of f32; rows are padded to whole vectors. Each size is below 2^62.
struct AttentionBlocks {
  AttentionBlocks(int64_t queries, int64_t keys, int64_t dim)
      : row(round_up(dim, kAttentionLanes)),
        keys_row(round_up(keys, kAttentionLanes)),
        query_rows(std::min(queries, kQueryBlock)),
        scores_row(std::min(keys_row, kKeyBlock)) {}

  int64_t row;         // of queries, keys and values
  int64_t keys_row;    // of transposed keys
  int64_t query_rows;  // of a block of queries
  int64_t scores_row;  // of a block of scores

  int64_t of_keys() const { return keys_row * row; }
  int64_t of_queries() const { return query_rows * row; }
  int64_t of_scores() const { return query_rows * scores_row; }
  int64_t of_numbers() const { return round_up(query_rows, kAttentionLanes); }  // one of each row

  // Nothing where the bytes do not fit an int64_t.
  // Transposed keys and values of one head; queries, results, scores, maxima and sums of a block.
  std::optional<int64_t> forward_bytes() const { return bytes(2, 2, 1); }
  // Keys, both ways, transposed values and both gradients of one head; queries, their gradients,
  // gradients of results, scores and their gradients, and two numbers of each row of a block.
  std::optional<int64_t> backward_bytes() const { return bytes(5, 3, 2); }

 private:
  // Of so many times keys, queries and scores, and two numbers of each row.
  std::optional<int64_t> bytes(int64_t keys, int64_t queries, int64_t scores) const {
    const auto of_keys = checked_product(std::array{4 * keys, keys_row, row});
    const auto of_queries = checked_product(std::array{4 * queries, query_rows, row});
    const auto sum = of_keys && of_queries ? checked_add(*of_keys, *of_queries) : std::nullopt;
    return sum ? checked_add(*sum, 4 * (scores * of_scores() + 2 * of_numbers())) : std::nullopt;
  }
};

}  // namespace dc::base
