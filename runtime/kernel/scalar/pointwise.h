// All operators that are applied element by element, and how elements in memory become what they
// compute with and back.
//
// A lane is what an operator computes with: float for f32, bf16 and f16, double for f64, int64_t
// for integers, Bool for bools.
#pragma once

#include "runtime/kernel/scalar/activations.h"
#include "runtime/kernel/scalar/arithmetic.h"
#include "runtime/kernel/scalar/choices.h"
#include "runtime/kernel/scalar/elements.h"

namespace dc::runtime::kernel::scalar {

// Between elements and lanes, or two kinds of lanes.
template <typename To, typename From>
inline To convert(From x) {
  return store<To>(load(x));
}

// What an operator takes.
template <typename T>
inline T value(T lane) {
  return lane;
}
inline bool value(Bool lane) { return lane.value != 0; }

template <typename Result, typename Operator, typename... Lanes>
inline Result apply(const Operator& op, Lanes... lanes) {
  return Result{op(value(lanes)...)};
}

// As apply(); with of_moderate() where there is one. If the operands are not moderate, `others`
// becomes true and the result means nothing.
template <typename Result, typename Operator, typename... Lanes>
inline Result apply_to_moderate(bool& others, const Operator& op, Lanes... lanes) {
  if constexpr (kKnowsModerate<Operator, Lanes...>) {
    others |= !op.is_moderate(lanes...);
    return Result{op.of_moderate(lanes...)};
  } else {
    return apply<Result>(op, lanes...);
  }
}

// A value of the lane, rounded to the element type.
template <typename Element, typename Lane>
inline Lane rounded(Lane x) {
#if defined(__CUDACC_RTC__) && __CUDA_ARCH__ >= 900
  // Which NaN it is does not matter in a lane.
  if constexpr (kSame<Element, BF16> && kSame<Lane, float>) {
    uint32_t bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(0.0f), "f"(x));
    return bit_cast<float>(bits << 16);
  }
#endif
  return convert<Lane>(convert<Element>(x));
}

}  // namespace dc::runtime::kernel::scalar
