// Activation functions and their gradients: runtime/kernel/scalar/activations.h.
#include "runtime/kernel/scalar/activations.h"

#include "runtime/kernel/native/pair.h"
#include "runtime/kernel/native/pointwise/pointwise.h"

namespace dc::runtime::kernel::native {
namespace {

DC_POINTWISE(ExpOfMinusAbs, ("self"))
DC_POINTWISE(Gelu, ("self"))
DC_POINTWISE(GeluBackward, ("grad_output", "self"))
DC_POINTWISE(GeluByTanh, ("self"))
DC_POINTWISE(GeluByTanhBackward, ("grad_output", "self"))
DC_POINTWISE(Hardtanh, ("self"), call.scalar<T>("min_val", T{-1}), call.scalar<T>("max_val", T{1}))
DC_POINTWISE(HardtanhBackward, ("grad_output", "self"), call.scalar<T>("min_val"),
             call.scalar<T>("max_val"))
DC_POINTWISE(LeakyRelu, ("self"), call.scalar<T>("negative_slope", T(0.01)))
DC_POINTWISE(LeakyReluBackward, ("grad_output", "self"), call.scalar<T>("negative_slope", T(0.01)))
DC_POINTWISE(LogSigmoid, ("self"))
DC_POINTWISE(LogSigmoidBackward, ("grad_output", "self", "buffer"))
DC_POINTWISE(LogSigmoidBackwardOfSelf, ("grad_output", "self"))
DC_POINTWISE(Relu, ("self"))
DC_POINTWISE(SigmoidBackward, ("grad_output", "output"))
DC_POINTWISE(Silu, ("self"))
DC_POINTWISE(SiluBackward, ("grad_output", "self"))
DC_POINTWISE(Softplus, ("self"), call.scalar<T>("beta", T{1}), call.scalar<T>("threshold", T{20}))
DC_POINTWISE(SoftplusBackward, ("grad_output", "self"), call.scalar<T>("beta"),
             call.scalar<T>("threshold"))
DC_POINTWISE(TanhBackward, ("grad_output", "output"))
DC_POINTWISE(ThresholdBackward, ("grad_output", "self"), call.scalar<T>("threshold"))

Made gelu(Call& call) {
  return call.text("approximate", "none") == "tanh" ? pointwise<GeluByTanh, kReal>(call)
                                                    : pointwise<Gelu, kReal>(call);
}
Made gelu_backward(Call& call) {
  return call.text("approximate", "none") == "tanh" ? pointwise<GeluByTanhBackward, kReal>(call)
                                                    : pointwise<GeluBackward, kReal>(call);
}

// On a CPU the second result has the shape of the first; elsewhere it is empty.
Made log_sigmoid(Call& call) {
  if (!call.has_result(1) || call.output(1).numel() == 0) return pointwise<LogSigmoid, kReal>(call);
  return pair(call, pointwise<LogSigmoid, kReal>(call), pointwise<ExpOfMinusAbs, kReal, 1>(call));
}
// Elsewhere its gradient has an operand without elements, which expressions leave out.
Made log_sigmoid_backward(Call& call) {
  const auto buffer = call.tensor_if("buffer");
  return buffer && buffer->numel() > 0 ? pointwise<LogSigmoidBackward, kReal>(call)
                                       : pointwise<LogSigmoidBackwardOfSelf, kReal>(call);
}

constexpr Row kRows[] = {
    {"aten.gelu.default", gelu},
    {"aten.gelu_backward.default", gelu_backward},
    {"aten.hardtanh.default", pointwise<Hardtanh, kReal>},
    {"aten.hardtanh_backward.default", pointwise<HardtanhBackward, kReal>},
    {"aten.leaky_relu.default", pointwise<LeakyRelu, kReal>},
    {"aten.leaky_relu_backward.default", pointwise<LeakyReluBackward, kReal>},
    {"aten.log_sigmoid_backward.default", log_sigmoid_backward},
    {"aten.log_sigmoid_forward.default", log_sigmoid},
    {"aten.relu.default", pointwise<Relu>},
    {"aten.sigmoid_backward.default", pointwise<SigmoidBackward, kReal>},
    {"aten.silu.default", pointwise<Silu, kReal>},
    {"aten.silu_backward.default", pointwise<SiluBackward, kReal>},
    {"aten.softplus.default", pointwise<Softplus, kReal>},
    {"aten.softplus_backward.default", pointwise<SoftplusBackward, kReal>},
    {"aten.tanh_backward.default", pointwise<TanhBackward, kReal>},
    {"aten.threshold_backward.default", pointwise<ThresholdBackward>},
};

}  // namespace

std::span<const Row> activation_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
