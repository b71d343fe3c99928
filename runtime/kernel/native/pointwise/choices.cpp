// Comparisons, logic, and what chooses between two values.
#include <cmath>

#include "runtime/kernel/native/pointwise/pointwise.h"

namespace dc::runtime::kernel::native {
namespace {

using One = std::array<std::string_view, 1>;
using Two = std::array<std::string_view, 2>;
using Three = std::array<std::string_view, 3>;

#define DC_TEST_OF_TWO(Name, expression)                   \
  template <typename T>                                    \
  struct Name {                                            \
    static constexpr Two kNames{"self", "other"};          \
    static constexpr bool kRounds = true;                  \
    explicit Name(Call&) {}                                \
    bool operator()(T x, T y) const { return expression; } \
  };
DC_TEST_OF_TWO(Equal, x == y)
DC_TEST_OF_TWO(NotEqual, x != y)
DC_TEST_OF_TWO(Less, x < y)
DC_TEST_OF_TWO(LessEqual, x <= y)
DC_TEST_OF_TWO(Greater, x > y)
DC_TEST_OF_TWO(GreaterEqual, x >= y)
DC_TEST_OF_TWO(And, (x != T{}) & (y != T{}))
DC_TEST_OF_TWO(Or, (x != T{}) | (y != T{}))
DC_TEST_OF_TWO(ExclusiveOr, (x != T{}) != (y != T{}))

#define DC_TEST_OF_ONE(Name, expression)              \
  template <typename T>                               \
  struct Name {                                       \
    static constexpr One kNames{"self"};              \
    explicit Name(Call&) {}                           \
    bool operator()(T x) const { return expression; } \
  };
DC_TEST_OF_ONE(Not, x == T{})
DC_TEST_OF_ONE(IsNan, x != x)
DC_TEST_OF_ONE(IsInfinite, x != T{} && x + x == x)
DC_TEST_OF_ONE(IsFinite, x - x == T{})

template <typename T>
struct BitAnd {
  static constexpr Two kNames{"self", "other"};
  explicit BitAnd(Call&) {}
  T operator()(T x, T y) const { return x & y; }
};
template <typename T>
struct BitOr {
  static constexpr Two kNames{"self", "other"};
  explicit BitOr(Call&) {}
  T operator()(T x, T y) const { return x | y; }
};
template <typename T>
struct BitXor {
  static constexpr Two kNames{"self", "other"};
  explicit BitXor(Call&) {}
  T operator()(T x, T y) const { return x ^ y; }
};
template <typename T>
struct BitNot {
  static constexpr One kNames{"self"};
  // Of a bool the lowest bit only.
  explicit BitNot(Call& call) : bits(call.output(0).dtype == base::DType::Bool ? 1 : ~T{}) {}
  T operator()(T x) const { return x ^ bits; }
  T bits;
};

template <typename T>
struct Where {
  static constexpr Three kNames{"condition", "self", "other"};
  static constexpr int kMask = 0;
  explicit Where(Call&) {}
  T operator()(bool condition, T x, T y) const { return condition ? x : y; }
};
template <typename T>
struct MaskedFill {
  static constexpr Three kNames{"self", "mask", "value"};
  static constexpr int kMask = 1;
  explicit MaskedFill(Call&) {}
  T operator()(T x, bool mask, T value) const { return mask ? value : x; }
};
template <typename T>
struct DropoutBackward {
  static constexpr Two kNames{"grad_output", "mask"};
  static constexpr int kMask = 1;
  explicit DropoutBackward(Call& call) : scale(call.scalar<T>("scale")) {}
  T operator()(T g, bool mask) const { return g * (mask ? scale : T{}); }
  T scale;
};

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
