// What the matrices of a product must be, on every device.
#pragma once

#include "runtime/kernel/native/call.h"

namespace dc::runtime::kernel::native {

// Refuses the call unless left x right, or a batch of such products, is as large as `result`, and
// the operands have elements of one type that products are computed in.
inline void check_product(Call& call, const BoundTensor& left, const BoundTensor& right,
                          const BoundTensor& result) {
  const auto &a = left.sizes, &b = right.sizes, &c = result.sizes;
  const size_t dims = a.size();
  call.require((dims == 2 || dims == 3) && b.size() == dims && c.size() == dims,
               "a product takes matrices, or batches of matrices");
  if (!call.ok()) return;
  const size_t rows = dims - 2, columns = dims - 1;
  const bool fits = a[columns] == b[rows] && c[rows] == a[rows] && c[columns] == b[columns] &&
                    (dims == 2 || (a[0] == b[0] && a[0] == c[0]));
  call.require(fits, "the sizes of the matrices do not fit");
  call.require(left.numel() > 0 && right.numel() > 0, "a matrix has no elements");
  call.require(left.dtype == base::DType::F32 || left.dtype == base::DType::BF16,
               "products are of f32 or bf16 elements");
  call.require(left.dtype == right.dtype, "the element types differ");
}

}  // namespace dc::runtime::kernel::native
