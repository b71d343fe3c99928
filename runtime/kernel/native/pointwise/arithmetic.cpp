// Arithmetic and elementary functions of one, two or three operands:
// runtime/kernel/scalar/arithmetic.h.
#include "runtime/kernel/scalar/arithmetic.h"

#include <limits>

#include "runtime/kernel/native/pointwise/pointwise.h"

namespace dc::runtime::kernel::native {
namespace {

DC_POINTWISE(Abs, ("self"))
DC_POINTWISE(Ceil, ("self"))
DC_POINTWISE(Cos, ("self"))
DC_POINTWISE(Cube, ("self"))
DC_POINTWISE(CubeOfBf16, ("self"))
DC_POINTWISE(CubeOfF16, ("self"))
DC_POINTWISE(Erf, ("self"))
DC_POINTWISE(Exp, ("self"))
DC_POINTWISE(Floor, ("self"))
DC_POINTWISE(InverseSquare, ("self"))
DC_POINTWISE(Log, ("self"))
DC_POINTWISE(Neg, ("self"))
DC_POINTWISE(Reciprocal, ("self"))
DC_POINTWISE(Round, ("self"))
DC_POINTWISE(Rsqrt, ("self"))
DC_POINTWISE(Same, ("self"))
DC_POINTWISE(Sigmoid, ("self"))
DC_POINTWISE(Sign, ("self"))
DC_POINTWISE(Sin, ("self"))
DC_POINTWISE(Sqrt, ("self"))
DC_POINTWISE(Square, ("self"))
DC_POINTWISE(Tanh, ("self"))
DC_POINTWISE(Trunc, ("self"))

DC_POINTWISE(Div, ("self", "other"))
DC_POINTWISE(FloorDivide, ("self", "other"))
DC_POINTWISE(Maximum, ("self", "other"))
DC_POINTWISE(Minimum, ("self", "other"))
DC_POINTWISE(Mul, ("self", "other"))
DC_POINTWISE(TruncDivide, ("self", "other"))

// Rounded to the type of 16-bit elements, as what it is multiplied with is.
template <typename T>
T alpha_of(Call& call) {
  constexpr auto names = operand_names("self", "other");
  return rounded(call.scalar<T>("alpha", T{1}), common_type(call, names, -1));
}
DC_POINTWISE(Add, ("self", "other"), alpha_of<T>(call))
DC_POINTWISE(ReverseSub, ("self", "other"), alpha_of<T>(call))
DC_POINTWISE(Sub, ("self", "other"), alpha_of<T>(call))
DC_POINTWISE(Power, ("self", "exponent"))
DC_POINTWISE(AtLeast, ("self", "min"))
DC_POINTWISE(AtMost, ("self", "max"))

DC_POINTWISE(AddProduct, ("self", "tensor1", "tensor2"), call.scalar<T>("value", T{1}))
DC_POINTWISE(AddQuotient, ("self", "tensor1", "tensor2"), call.scalar<T>("value", T{1}))

// Without a bound its side is open.
template <typename T>
constexpr T most() {
  using Limits = std::numeric_limits<T>;
  return Limits::has_infinity ? Limits::infinity() : Limits::max();
}
template <typename T>
constexpr T least() {
  using Limits = std::numeric_limits<T>;
  return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
}
// As in PyTorch NaN counts as no bound if there is no other one.
template <typename T>
T bound_of(Call& call, std::string_view name, std::string_view other, T open) {
  const T bound = call.scalar<T>(name, open);
  return bound != bound && !call.has_value(other) ? open : bound;
}
DC_POINTWISE(Clamp, ("self"), bound_of(call, "min", "max", least<T>()),
             bound_of(call, "max", "min", most<T>()))

Made divide_by_mode(Call& call) {
  const std::string mode = call.text("rounding_mode", "");
  if (mode == "floor") return pointwise<FloorDivide>(call);
  if (mode == "trunc") return pointwise<TruncDivide>(call);
  return pointwise<Div, kReal>(call);
}

Made power_by_number(Call& call) {
  const double exponent = call.number("exponent", 1);
  if (exponent == 1) return pointwise<Same>(call);
  if (exponent == 2) return pointwise<Square>(call);
  const base::DType dtype = call.output(0).dtype;
  if (exponent == 3 && dtype == base::DType::BF16) return pointwise<CubeOfBf16, kF32>(call);
  if (exponent == 3 && dtype == base::DType::F16) return pointwise<CubeOfF16, kF32>(call);
  if (exponent == 3) return pointwise<Cube>(call);
  if (exponent == 0.5) return pointwise<Sqrt, kReal>(call);
  if (exponent == -0.5) return pointwise<Rsqrt, kReal>(call);
  if (exponent == -1) return pointwise<Reciprocal, kReal>(call);
  if (exponent == -2) return pointwise<InverseSquare, kReal>(call);
  return pointwise<Power>(call);
}

constexpr Row kRows[] = {
    {"aten.abs.default", pointwise<Abs>},
    {"aten.add.Scalar", pointwise<Add>},
    {"aten.add.Tensor", pointwise<Add>},
    {"aten.addcdiv.default", pointwise<AddQuotient, kReal>},
    {"aten.addcmul.default", pointwise<AddProduct>},
    {"aten.ceil.default", pointwise<Ceil, kReal>},
    {"aten.clamp.default", pointwise<Clamp>},
    {"aten.clamp_max.Tensor", pointwise<AtMost>},
    {"aten.clamp_max.default", pointwise<AtMost>},
    {"aten.clamp_min.Tensor", pointwise<AtLeast>},
    {"aten.clamp_min.default", pointwise<AtLeast>},
    {"aten.cos.default", pointwise<Cos, kReal>},
    {"aten.div.Scalar", pointwise<Div, kReal>},
    {"aten.div.Scalar_mode", divide_by_mode},
    {"aten.div.Tensor", pointwise<Div, kReal>},
    {"aten.div.Tensor_mode", divide_by_mode},
    {"aten.erf.default", pointwise<Erf, kReal>},
    {"aten.exp.default", pointwise<Exp, kReal>},
    {"aten.floor.default", pointwise<Floor, kReal>},
    {"aten.floor_divide.Scalar", pointwise<FloorDivide>},
    {"aten.floor_divide.default", pointwise<FloorDivide>},
    {"aten.log.default", pointwise<Log, kReal>},
    {"aten.maximum.default", pointwise<Maximum>},
    {"aten.minimum.default", pointwise<Minimum>},
    {"aten.mul.Scalar", pointwise<Mul>},
    {"aten.mul.Tensor", pointwise<Mul>},
    {"aten.neg.default", pointwise<Neg>},
    {"aten.pow.Tensor_Scalar", power_by_number},
    {"aten.pow.Tensor_Tensor", pointwise<Power>},
    {"aten.pow.Scalar", pointwise<Power>},
    {"aten.reciprocal.default", pointwise<Reciprocal, kReal>},
    {"aten.round.default", pointwise<Round, kReal>},
    {"aten.rsqrt.default", pointwise<Rsqrt, kReal>},
    {"aten.rsub.Scalar", pointwise<ReverseSub>},
    {"aten.rsub.Tensor", pointwise<ReverseSub>},
    {"aten.sgn.default", pointwise<Sign>},
    {"aten.sigmoid.default", pointwise<Sigmoid, kReal>},
    {"aten.sign.default", pointwise<Sign>},
    {"aten.sin.default", pointwise<Sin, kReal>},
    {"aten.sqrt.default", pointwise<Sqrt, kReal>},
    {"aten.sub.Scalar", pointwise<Sub>},
    {"aten.sub.Tensor", pointwise<Sub>},
    {"aten.tanh.default", pointwise<Tanh, kReal>},
    {"aten.trunc.default", pointwise<Trunc, kReal>},
};

}  // namespace

std::span<const Row> arithmetic_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
