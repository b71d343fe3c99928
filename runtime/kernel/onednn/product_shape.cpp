#include "runtime/kernel/onednn/product_shape.h"

#include <algorithm>

#include "runtime/kernel/native/attention/multiply.h"
#include "src/base/shape.h"
#include "src/base/units.h"

namespace dc::runtime::kernel::onednn {

// A dim of one element may have any stride. It gets the one that a matrix without gaps has.
Matrices matrices_of(const BoundTensor& tensor) {
  Matrices m{{tensor.sizes.begin(), tensor.sizes.end()},
             {tensor.strides.begin(), tensor.strides.end()}};
  const size_t r = m.sizes.size() - 2, c = r + 1;
  const int64_t rows = m.sizes[r], columns = m.sizes[c];
  if (rows == 1 && columns == 1) m.strides[r] = m.strides[c] = 1;
  if (rows == 1 && columns > 1) m.strides[r] = m.strides[c] == 1 ? columns : 1;
  if (columns == 1 && rows > 1) m.strides[c] = m.strides[r] == 1 ? rows : 1;
  if (r == 1 && m.sizes[0] == 1) m.strides[0] = rows * columns;
  return m;
}

Lies how_it_lies(const Matrices& m) {
  const size_t r = m.sizes.size() - 2, c = r + 1;
  const int64_t rows = m.sizes[r], columns = m.sizes[c];
  const bool by_rows = m.strides[c] == 1 && m.strides[r] == columns;
  const bool by_columns = m.strides[r] == 1 && m.strides[c] == rows;
  if (!by_rows && !by_columns) return Lies::Gapped;
  if (r == 0 || m.strides[0] == rows * columns) return Lies::Whole;
  return m.strides[0] == 0 ? Lies::Same : Lies::Gapped;
}

bool is_copied_to_rows(const Matrices& m) {
  constexpr int64_t kLeast = int64_t{1} << 15;  // elements; of fewer, oneDNN's copy takes as long
  return m.sizes.size() == 2 && m.sizes[0] > 1 && m.sizes[1] > 1 && m.strides[0] == 1 &&
         m.strides[1] == m.sizes[0] && m.sizes[1] >= kLeast / m.sizes[0];
}

bool is_multiplied_in_place(const Matrices& left, const Matrices& right) {
  constexpr int64_t kMostRight = int64_t{1} << 13, kMostLeft = int64_t{1} << 18;  // elements
  constexpr int64_t kMostDepth = 256;
  const size_t r = right.sizes.size() - 2, c = r + 1;
  const int64_t depth = right.sizes[r], columns = right.sizes[c];
  const bool lie_so = how_it_lies(left) == Lies::Whole && left.strides[r] == 1 &&
                      how_it_lies(right) == Lies::Whole && right.strides[c] == 1;
  return lie_so && columns % native::kColumns == 0 && depth <= kMostDepth &&
         columns <= kMostRight / depth && left.sizes[r] <= kMostLeft / depth;
}

int64_t rows_of_block(int64_t rows) {
  constexpr int64_t kMultiple = 16;  // of rows, that oneDNN multiplies at once
  const int64_t blocks = (rows + kMostRowsCopied - 1) / kMostRowsCopied;
  return std::min(rows, base::round_up((rows + blocks - 1) / blocks, kMultiple));
}

std::vector<int64_t> dense_strides(const Matrices& matrices) {
  return base::contiguous_strides(matrices.sizes);
}

}  // namespace dc::runtime::kernel::onednn
