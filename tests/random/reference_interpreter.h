// The reference interpreter: what an instruction of an element-wise operator gives, element by
// element, one plain expression after the other, without lanes, blocks or strides.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/kernel/kernel.h"
#include "runtime/plan/plan.h"

namespace dc::test {

// A tensor's elements in row-major order, whatever its strides, each in the low bits.
struct Elements {
  base::DType dtype = base::DType::F32;
  std::vector<int64_t> sizes;
  std::vector<uint64_t> bits;
};

// PyTorch's common type. Weight 0: tensors with dims, which decide; 1: tensors without; 2: numbers.
// These count only where they are of a higher kind: bool, integer, floating. Types of small
// integers become I64 where they differ, in which all integers are computed.
struct WeightedType {
  base::DType dtype;
  int weight;
};
base::DType common_type(std::span<const WeightedType> types);

// An element as a number of float, double or int64_t, and back, rounded once.
template <typename T>
T value_of(uint64_t bits, base::DType dtype);
template <typename T>
uint64_t bits_of(T value, base::DType dtype);

Elements read_elements(const runtime::kernel::BoundTensor& tensor);

// `operands`: of the instruction's tensor arguments, in order. The result has its element type and
// sizes.
Elements interpret(const runtime::plan::Instruction& instruction,
                   const std::vector<Elements>& operands, base::DType dtype,
                   const std::vector<int64_t>& sizes);

// Where the two differ: "element 7: 0x3f800000, not 0x3f800001"; empty if nowhere. All NaNs are
// one. `is_close`: within a few units in the last place of what the operands are as large as.
std::string difference(const Elements& found, const Elements& expected, bool is_close,
                       const std::vector<Elements>& operands);

}  // namespace dc::test
