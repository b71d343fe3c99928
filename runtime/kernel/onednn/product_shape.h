// How the matrices of a product lie, as oneDNN's fast kernels take them: rows or columns without
// gaps, batches one behind the other or all the same matrix. Anything else is copied.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/kernel/kernel.h"

namespace dc::runtime::kernel::onednn {

// Row-major with any strides, in elements.
struct Matrices {
  std::vector<int64_t> sizes, strides;  // [rows, columns] or [batch, rows, columns]
};
Matrices matrices_of(const BoundTensor& tensor);

enum class Lies : uint8_t {
  Whole,   // every matrix of the batch behind the one before
  Same,    // one matrix for the whole batch
  Gapped,  // neither, or with gaps in the matrix
};
Lies how_it_lies(const Matrices& matrices);

// Whether a left operand of bf16 is copied to rows before it is multiplied: a large matrix whose
// columns lie one behind the other, as in the gradient of a weight. oneDNN copies it too, in more
// time.
bool is_copied_to_rows(const Matrices& matrices);
// Whether native::multiply() multiplies these matrices of f32 where they are: a left side by
// columns, as in the gradient of a weight, that the second-level cache has room for, and a right
// side by rows that the first-level cache has. oneDNN copies the left side in more time.
bool is_multiplied_in_place(const Matrices& left, const Matrices& right);
// So many rows at once, as many as oneDNN's own copy has; more are blocks of them.
inline constexpr int64_t kMostRowsCopied = 512;
// Of the blocks of so many rows, the rows of all but the last, which may have fewer.
int64_t rows_of_block(int64_t rows);

// Of a copy without gaps, which keeps rows as rows.
std::vector<int64_t> dense_strides(const Matrices& matrices);

}  // namespace dc::runtime::kernel::onednn
