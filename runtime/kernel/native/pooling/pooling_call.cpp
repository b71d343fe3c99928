#include "runtime/kernel/native/pooling/pooling_call.h"

#include "runtime/kernel/native/operator_rows.h"

namespace dc::runtime::kernel::native {
namespace {

void read_indices(Call& call, PoolingCall& pooling, const BoundTensor& indices) {
  call.require(indices.dtype == base::DType::I64, "'indices' must be of i64");
  call.same_sizes(indices, pooling.out);
  pooling.indices = indices;
}

void read_divisor(Call& call, PoolingCall& pooling) {
  if (!call.has_value("divisor_override")) return;
  pooling.divisor = call.integer("divisor_override");
  call.require(pooling.divisor != 0, "'divisor_override' is zero");
}

}  // namespace

std::optional<PoolingCall> read_pooling(Call& call) {
  const PoolingOperator& of = operator_of(kPoolingOperators, call.op());
  PoolingCall pooling{of.kind, of.dims, {}, {}, {}, {}, {}};
  if (of.kind == PoolingKind::Largest || of.kind == PoolingKind::Average) {
    pooling.in = call.tensor("self");
    pooling.out = call.output(0);
  } else {
    pooling.in = call.output(0);
    pooling.out = call.tensor("grad_output");
    call.same_sizes(call.tensor("self"), pooling.in);
  }
  auto windows =
      (of.is_adaptive ? adaptive_windows : sliding_windows)(call, pooling.in, pooling.out, of.dims);
  call.require(pooling.in.dtype == pooling.out.dtype, "the element types differ");
  call.require(base::is_floating(pooling.in.dtype), "pooling takes floating-point numbers");
  if (!windows || !call.ok()) return std::nullopt;
  pooling.windows = *std::move(windows);
  switch (of.kind) {
    case PoolingKind::Largest:
      call.require(!pooling.windows.has_empty_window(), "a window lies in the padding");
      if (call.has_result(1)) read_indices(call, pooling, call.output(1));
      break;
    case PoolingKind::LargestGradient:
      read_indices(call, pooling, call.tensor("indices"));
      break;
    case PoolingKind::Average:
    case PoolingKind::AverageGradient:
      read_divisor(call, pooling);
      break;
  }
  return call.ok() ? std::optional(std::move(pooling)) : std::nullopt;
}

}  // namespace dc::runtime::kernel::native
