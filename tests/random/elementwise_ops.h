// Every element-wise operator that a fused kernel can run, with what PyTorch's documentation says
// that it computes, as one plain expression: what random graphs are made of, and what the reference
// interpreter works out.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "src/base/dtype.h"

namespace dc::test {

// What an operator computes from, in the type that it computes in. x, y, z: tensors and numbers in
// an operand's place, in order. a, b: other numbers. `mask`: the operand that is a bool.
template <typename T>
struct Operands {
  T x{}, y{}, z{}, a{}, b{};
  bool mask = false;
  bool has_word = false;  // second_word()
  bool of_bools = false;  // the operands are bools
};

struct ElementwiseArgument {
  enum class Kind : uint8_t {
    Tensor,
    Mask,    // a tensor of bools
    Scalar,  // a number in an operand's place
    Number,
    Word,
    Type,  // of the result
  };
  Kind kind = Kind::Tensor;
  std::string_view name;
};

struct ElementwiseOp {
  // Floating: one operand is; Real: integers become f32; Integral: none is floating.
  enum class Takes : uint8_t { Any, Floating, Real, Integral };
  // Common: the common type of the operands, of Real at least f32.
  enum class Gives : uint8_t { Common, Truth, Type };
  // Exact: every step of the expression is rounded once, so the bits are known. Close: known to a
  // few units in the last place of the largest operand, where that is at most 1e6: beyond, steps
  // overflow that are left to each kernel.
  enum class Bits : uint8_t { Exact, Close };

  std::string_view overload;  // "aten.mul.Tensor"
  std::vector<ElementwiseArgument> arguments;
  Takes takes = Takes::Any;
  Gives gives = Gives::Common;
  Bits bits = Bits::Exact;
  float (*in_f32)(const Operands<float>&) = nullptr;
  double (*in_f64)(const Operands<double>&) = nullptr;
  int64_t (*in_i64)(const Operands<int64_t>&) = nullptr;

  size_t count(ElementwiseArgument::Kind kind) const;
};

std::span<const ElementwiseOp> elementwise_ops();
const ElementwiseOp* find_elementwise(std::string_view overload);  // null if it is none

// Of `approximate` and `rounding_mode`: the word that Operands::has_word means, and another.
std::string_view second_word(std::string_view argument);
std::string_view first_word(std::string_view argument);

}  // namespace dc::test
