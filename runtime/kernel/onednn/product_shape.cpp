#include "runtime/kernel/onednn/product_shape.h"

#include "src/base/shape.h"

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

std::vector<int64_t> dense_strides(const Matrices& matrices) {
  return base::contiguous_strides(matrices.sizes);
}

}  // namespace dc::runtime::kernel::onednn
