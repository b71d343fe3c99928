// Matrices of elements of two or four bytes whose rows become columns.
#pragma once

#include <cstdint>

namespace dc::runtime::kernel::native {

// to[j][i] = from[i][j]; columns [rows, to_row) of `to` are not touched. Distances in elements.
// Only bits are moved, so they may be those of any element of as many bytes.
void transpose(float* __restrict to, int64_t to_row, const float* from, int64_t from_row,
               int64_t rows, int64_t columns);
void transpose(uint16_t* __restrict to, int64_t to_row, const uint16_t* from, int64_t from_row,
               int64_t rows, int64_t columns);

}  // namespace dc::runtime::kernel::native
