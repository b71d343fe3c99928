#include "runtime/kernel/native/products/triangular_call.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace dc::runtime::kernel::native {
namespace {

MatrixTensor matrix_of(const BoundTensor& tensor, bool is_transposed) {
  MatrixTensor matrix{tensor.data, tensor.strides[tensor.strides.size() - 2],
                      tensor.strides.back()};
  if (is_transposed) std::swap(matrix.row, matrix.column);
  return matrix;
}

// The tensor without its two last dims, broadcast to a batch of these sizes.
std::vector<int64_t> batch_strides(Call& call, const BoundTensor& tensor,
                                   std::span<const int64_t> sizes) {
  BoundTensor batch = tensor;
  batch.sizes = batch.sizes.first(batch.sizes.size() - 2);
  batch.strides = batch.strides.first(batch.sizes.size());
  const auto strides = broadcast_strides(batch, sizes);
  call.require(strides.has_value(), "an operand cannot be broadcast to the batch of the result");
  return strides.value_or(std::vector<int64_t>(sizes.size()));
}

}  // namespace

TriangularCall read_triangular(Call& call) {
  TriangularCall of;
  const BoundTensor a = call.tensor("self"), b = call.tensor("B"), to = call.output(0);
  call.require(a.dtype == to.dtype && b.dtype == to.dtype, "the element types differ");
  call.require(to.dtype == base::DType::F32 || to.dtype == base::DType::F64, "it takes f32 or f64");
  call.require(a.sizes.size() >= 2 && b.sizes.size() >= 2 && to.sizes.size() >= 2,
               "it takes matrices");
  if (!call.ok()) return of;
  const bool is_left = call.integer("left", 1) != 0, is_upper = call.integer("upper") != 0;
  const size_t dims = to.sizes.size();
  of.dtype = to.dtype;
  of.size = a.sizes.back();
  of.columns = to.sizes[is_left ? dims - 1 : dims - 2];
  of.is_upper = is_upper == is_left;  // of the transpose the other half
  of.has_unit_diagonal = call.integer("unitriangular", 0) != 0;
  call.require(
      a.sizes[a.sizes.size() - 2] == of.size && to.sizes[is_left ? dims - 2 : dims - 1] == of.size,
      "the matrix is not square or has another size than the equations");
  call.require(std::ranges::equal(b.sizes.last(2), to.sizes.last(2)),
               "the result has another shape");
  of.a = matrix_of(a, !is_left);
  of.b = matrix_of(b, !is_left);
  of.x = matrix_of(to, !is_left);
  const auto sizes = to.sizes.first(dims - 2);
  of.batch =
      Iteration(sizes, std::array{batch_strides(call, to, sizes), batch_strides(call, a, sizes),
                                  batch_strides(call, b, sizes)});
  call.require(of.batch.fits(), "its tensors have too many dims");
  return of;
}

}  // namespace dc::runtime::kernel::native
