// What an instruction reads and writes, by the verifier's own knowledge of every kernel. A plan's
// lists are compared with it, so that no list can hide an effect. Not for other folders.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/plan.h"

namespace dc::runtime::verify {

// A native kernel and its tensors. One letter per operand:
//   r  read
//   w  overwritten: nothing of what was there is read
//   u  updated: read, or written in part, or both
// Operands come first among the arguments; no other argument is a tensor.
struct NativeKernel {
  std::string_view op, operands;
  size_t results = 0;     // at most so many; the others are not wanted
  bool in_place = false;  // result 0 is operand 0
  size_t perhaps = 0;     // so many of the last operands may be missing
};
std::span<const NativeKernel> native_kernels();  // by name

struct Effects {
  std::vector<int32_t> reads, writes;  // tensors, sorted, each once
  std::string problem;  // not empty: what it touches is unknown; "is a ...", for a sentence
};
// The scratch of a kernel is written as well.
Effects effects_of(const plan::Instruction& instruction);

bool works_in_place(const plan::Instruction& instruction);  // result 0 is operand 0

// Whether an overload of ATen ("aten.relu_.default") writes an operand: in-place and out overloads
// by ATen's rules for names, and those that break these rules, by name. Plans have none of them.
bool writes_operands(std::string_view overload);

}  // namespace dc::runtime::verify
