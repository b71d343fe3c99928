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

}  // namespace dc::runtime::kernel::scalar
