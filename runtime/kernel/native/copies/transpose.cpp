#include "runtime/kernel/native/copies/transpose.h"

#include <algorithm>

#include "runtime/kernel/native/vector_clones.h"

namespace dc::runtime::kernel::native {
namespace {

using Four [[gnu::vector_size(16), gnu::aligned(4), gnu::may_alias]] = float;
// Four rows and columns.
[[gnu::always_inline]] inline void transpose_square(float* to, int64_t to_row, const float* from,
                                                    int64_t from_row) {
  const Four a = *reinterpret_cast<const Four*>(from),
             b = *reinterpret_cast<const Four*>(from + from_row),
             c = *reinterpret_cast<const Four*>(from + 2 * from_row),
             d = *reinterpret_cast<const Four*>(from + 3 * from_row);
  const Four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5),
             more_ab = __builtin_shufflevector(a, b, 2, 6, 3, 7),
             cd = __builtin_shufflevector(c, d, 0, 4, 1, 5),
             more_cd = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  *reinterpret_cast<Four*>(to) = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
  *reinterpret_cast<Four*>(to + to_row) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
  *reinterpret_cast<Four*>(to + 2 * to_row) = __builtin_shufflevector(more_ab, more_cd, 0, 1, 4, 5);
  *reinterpret_cast<Four*>(to + 3 * to_row) = __builtin_shufflevector(more_ab, more_cd, 2, 3, 6, 7);
}

}  // namespace

DC_VECTOR_CLONES void transpose(float* __restrict to, int64_t to_row, const float* from,
                                int64_t from_row, int64_t rows, int64_t columns) {
  constexpr int64_t kStrip = 16;  // rows whose parts stay in the cache while columns are written
  const int64_t square_rows = rows / 4 * 4, square_columns = columns / 4 * 4;
  for (int64_t first = 0; first < square_rows; first += kStrip) {
    const int64_t end = std::min(first + kStrip, square_rows);
    for (int64_t j = 0; j < square_columns; j += 4) {
      for (int64_t i = first; i < end; i += 4)
        transpose_square(to + j * to_row + i, to_row, from + i * from_row + j, from_row);
    }
  }
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = i < square_rows ? square_columns : 0; j < columns; ++j)
      to[j * to_row + i] = from[i * from_row + j];
  }
}

}  // namespace dc::runtime::kernel::native
