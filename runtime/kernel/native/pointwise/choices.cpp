// Comparisons, logic, and what chooses between two values: runtime/kernel/scalar/choices.h.
#include "runtime/kernel/scalar/choices.h"

#include "runtime/kernel/native/pointwise/pointwise.h"

namespace dc::runtime::kernel::native {
namespace {

DC_POINTWISE(And, ("self", "other"))
DC_POINTWISE(BitAnd, ("self", "other"))
DC_POINTWISE(BitOr, ("self", "other"))
DC_POINTWISE(BitXor, ("self", "other"))
DC_POINTWISE(Equal, ("self", "other"))
DC_POINTWISE(ExclusiveOr, ("self", "other"))
DC_POINTWISE(Greater, ("self", "other"))
DC_POINTWISE(GreaterEqual, ("self", "other"))
DC_POINTWISE(Less, ("self", "other"))
DC_POINTWISE(LessEqual, ("self", "other"))
DC_POINTWISE(NotEqual, ("self", "other"))
DC_POINTWISE(Or, ("self", "other"))
DC_POINTWISE(BitNot, ("self"), call.output(0).dtype == base::DType::Bool ? T{1} : T{-1})
DC_POINTWISE(IsFinite, ("self"))
DC_POINTWISE(IsInfinite, ("self"))
DC_POINTWISE(IsNan, ("self"))
DC_POINTWISE(Not, ("self"))

DC_POINTWISE(DropoutBackward, ("grad_output", "mask"), call.scalar<T>("scale"))
DC_POINTWISE(MaskedFill, ("self", "mask", "value"))
DC_POINTWISE(Where, ("condition", "self", "other"))

constexpr Row kRows[] = {
    {"aten.bitwise_and.Scalar", pointwise<BitAnd, kI64>},
    {"aten.bitwise_and.Tensor", pointwise<BitAnd, kI64>},
    {"aten.bitwise_not.default", pointwise<BitNot, kI64>},
    {"aten.bitwise_or.Scalar", pointwise<BitOr, kI64>},
    {"aten.bitwise_or.Tensor", pointwise<BitOr, kI64>},
    {"aten.bitwise_xor.Scalar", pointwise<BitXor, kI64>},
    {"aten.bitwise_xor.Tensor", pointwise<BitXor, kI64>},
    {"aten.eq.Scalar", pointwise<Equal>},
    {"aten.eq.Tensor", pointwise<Equal>},
    {"aten.ge.Scalar", pointwise<GreaterEqual>},
    {"aten.ge.Tensor", pointwise<GreaterEqual>},
    {"aten.gt.Scalar", pointwise<Greater>},
    {"aten.gt.Tensor", pointwise<Greater>},
    {"aten.isfinite.default", pointwise<IsFinite>},
    {"aten.isinf.default", pointwise<IsInfinite, kReal>},
    {"aten.isnan.default", pointwise<IsNan>},
    {"aten.le.Scalar", pointwise<LessEqual>},
    {"aten.le.Tensor", pointwise<LessEqual>},
    {"aten.logical_and.default", pointwise<And>},
    {"aten.logical_not.default", pointwise<Not>},
    {"aten.logical_or.default", pointwise<Or>},
    {"aten.logical_xor.default", pointwise<ExclusiveOr>},
    {"aten.lt.Scalar", pointwise<Less>},
    {"aten.lt.Tensor", pointwise<Less>},
    {"aten.masked_fill.Scalar", pointwise<MaskedFill>},
    {"aten.masked_fill.Tensor", pointwise<MaskedFill>},
    {"aten.native_dropout_backward.default", pointwise<DropoutBackward, kReal>},
    {"aten.ne.Scalar", pointwise<NotEqual>},
    {"aten.ne.Tensor", pointwise<NotEqual>},
    {"aten.where.Scalar", pointwise<Where>},
    {"aten.where.ScalarOther", pointwise<Where>},
    {"aten.where.ScalarSelf", pointwise<Where>},
    {"aten.where.self", pointwise<Where>},
};

}  // namespace

std::span<const Row> choice_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
