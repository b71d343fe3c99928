// Systems of equations with triangular matrices.
#include <algorithm>
#include <array>

#include "runtime/kernel/cuda/hand_source.h"
#include "runtime/kernel/cuda/kernels/triangular_parameters.h"
#include "runtime/kernel/cuda/model_kernels.h"
#include "runtime/kernel/cuda/walks.h"

namespace dc::runtime::kernel::cuda {
namespace {

using base::DType;
using native::Call;
using native::Made;

MatrixPlace place_of(const BoundTensor& tensor, bool is_transposed) {
  const size_t dims = tensor.sizes.size();
  const MatrixPlace place{tensor.data, tensor.strides[dims - 2], tensor.strides[dims - 1]};
  return is_transposed ? MatrixPlace{place.data, place.column, place.row} : place;
}

// The tensor without its two last dims, broadcast to a batch of these sizes.
std::vector<int64_t> batch_strides(Call& call, const BoundTensor& tensor,
                                   std::span<const int64_t> sizes) {
  BoundTensor batch = tensor;
  batch.sizes = batch.sizes.first(batch.sizes.size() - 2);
  batch.strides = batch.strides.first(batch.sizes.size());
  const auto strides = native::broadcast_strides(batch, sizes);
  call.require(strides.has_value(), "an operand cannot be broadcast to the batch of the result");
  return strides.value_or(std::vector<int64_t>(sizes.size()));
}

// X A = B is solved as its transpose.
Made triangular_kernel(Workshop& workshop, Call& call, int32_t) {
  const BoundTensor a = call.tensor("self"), b = call.tensor("B"), to = call.output(0);
  call.require(a.dtype == to.dtype && b.dtype == to.dtype, "the element types differ");
  call.require(to.dtype == DType::F32 || to.dtype == DType::F64, "it takes f32 or f64");
  call.require(a.sizes.size() >= 2 && b.sizes.size() >= 2 && to.sizes.size() >= 2,
               "it takes matrices");
  if (!call.ok()) return call.made(nullptr);
  const bool is_left = call.integer("left", 1) != 0, is_upper = call.integer("upper") != 0;
  const size_t dims = to.sizes.size();
  const int64_t size = a.sizes.back();
  call.require(
      a.sizes[a.sizes.size() - 2] == size && to.sizes[is_left ? dims - 2 : dims - 1] == size,
      "the matrix is not square or has another size than the equations");
  call.require(std::ranges::equal(b.sizes.last(2), to.sizes.last(2)),
               "the result has another shape");
  if (!call.ok()) return call.made(nullptr);
  const auto sizes = to.sizes.first(dims - 2);
  const std::array strides{batch_strides(call, to, sizes), batch_strides(call, a, sizes),
                           batch_strides(call, b, sizes)};
  const TriangularSystem parameters{place_of(a, !is_left),
                                    place_of(b, !is_left),
                                    place_of(to, !is_left),
                                    walk_of<3>(call, native::Iteration(sizes, strides)),
                                    size,
                                    to.sizes[is_left ? dims - 1 : dims - 2],
                                    is_upper == is_left,  // of the transpose the other half
                                    call.integer("unitriangular", 0) != 0};
  if (!call.ok()) return call.made(nullptr);
  return workshop.kernel(source_for({to.dtype}, "dc_solve_triangular", "triangular.h",
                                    "TriangularSystem", "solve_triangular"),
                         workshop.blocks_for(parameters.batch.count * parameters.columns),
                         parameters);
}

constexpr ModelKernelRow kTriangularRows[] = {
    {"aten.linalg_solve_triangular.default", triangular_kernel},
};

}  // namespace

std::span<const ModelKernelRow> triangular_kernels() { return kTriangularRows; }

}  // namespace dc::runtime::kernel::cuda
