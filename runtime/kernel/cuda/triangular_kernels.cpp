// Systems of equations with triangular matrices.
#include "runtime/kernel/cuda/hand_source.h"
#include "runtime/kernel/cuda/kernels/triangular_parameters.h"
#include "runtime/kernel/cuda/model_kernels.h"
#include "runtime/kernel/cuda/walks.h"
#include "runtime/kernel/native/products/triangular_call.h"

namespace dc::runtime::kernel::cuda {
namespace {

using native::Call;
using native::Made;

MatrixPlace place_of(const native::MatrixTensor& matrix) {
  return {matrix.data, matrix.row, matrix.column};
}

Made triangular_kernel(Workshop& workshop, Call& call, int32_t) {
  const native::TriangularCall of = native::read_triangular(call);
  const TriangularSystem parameters{
      place_of(of.a), place_of(of.b), place_of(of.x), walk_of<3>(call, of.batch),
      of.size,        of.columns,     of.is_upper,    of.has_unit_diagonal};
  if (!call.ok()) return call.made(nullptr);
  return workshop.kernel(source_for({of.dtype}, "dc_solve_triangular", "triangular.h",
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
