#include "runtime/kernel/native/norms/norm_call.h"

#include <limits>

#include "src/base/shape.h"

namespace dc::runtime::kernel::native {
namespace {

// What both directions have.
NormCall read_operands(Call& call) {
  NormCall norm;
  norm.is_centered = call.op().starts_with("aten.native_layer_norm");
  norm.x = call.tensor("input");
  norm.weight = call.tensor_if("weight");
  norm.bias = call.tensor_if("bias");
  return norm;
}

// The first of the normalized dims.
size_t first_dim(Call& call, const BoundTensor& x) {
  const size_t dims = call.integers("normalized_shape").size();
  call.require(dims <= x.sizes.size() && base::is_floating(x.dtype),
               "'normalized_shape' does not fit the operand");
  if (!call.ok()) return 0;
  // Memory is taken for each element of a row, which an expanded operand need not have.
  call.require(base::numel(x.sizes.last(dims)) <= INT32_MAX, "a row is too long");
  return x.sizes.size() - dims;
}

// A missing number of rows lies where the other does.
Rows rows_of(Call& call, const NormCall& norm) {
  const BoundTensor &x = norm.x, &y = norm.y ? *norm.y : x, &g = norm.g ? *norm.g : y;
  const size_t first = first_dim(call, x), dims = x.sizes.size();
  if (!norm.rstd && !norm.mean) return {call, x, first, dims, {&x, &y, &g}};
  const BoundTensor& rstd = norm.rstd ? *norm.rstd : *norm.mean;
  const BoundTensor& mean = norm.mean ? *norm.mean : rstd;
  return {call, x, first, dims, {&x, &y, &g}, {&rstd, &mean}};
}

std::optional<BoundTensor> output_if(Call& call, size_t index) {
  return call.has_result(index) ? std::optional(call.output(index)) : std::nullopt;
}

}  // namespace

NormCall read_norm(Call& call) {
  NormCall norm = read_operands(call);
  norm.y = call.output(0);
  norm.rstd = output_if(call, norm.is_centered ? 2 : 1);
  if (norm.is_centered) norm.mean = output_if(call, 1);
  // Without eps: the resolution of the type that is computed in.
  norm.eps = call.number("eps", norm.x.dtype == base::DType::F64
                                    ? std::numeric_limits<double>::epsilon()
                                    : double{std::numeric_limits<float>::epsilon()});
  norm.rows = rows_of(call, norm);
  return norm;
}

NormCall read_norm_gradients(Call& call) {
  NormCall norm = read_operands(call);
  norm.g = call.tensor("grad_out");
  norm.rstd = call.tensor("rstd");
  if (norm.is_centered) norm.mean = call.tensor("mean");
  norm.y = output_if(call, 0);
  norm.weight_gradient = output_if(call, 1);
  if (norm.is_centered) norm.bias_gradient = output_if(call, 2);
  norm.rows = rows_of(call, norm);
  return norm;
}

}  // namespace dc::runtime::kernel::native
