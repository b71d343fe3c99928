// Expression: what a fused kernel computes for each element: operators of ATen, applied element by
// element to operands and to what earlier operations gave, in the order of the list.
//
//   "t0:f32=silu.default(self=a0);t1:bf16=mul.Tensor(self=t0,other=a1);->t1"
//
// a0, a1, ... are the operands of the kernel, t0, t1, ... the values of the operations. All values
// have one shape, that of every result; operands are broadcast to it. Meaning: each operation does
// what the native kernel of its overload does, and its value is rounded to its element type, though
// it never lies in memory. So a fused kernel gives the bits that the kernels of its operations give
// one after the other.
//
// An expression may have reductions, which fold dims of that shape (is_reduction()), all the same:
//
//   "t0:f32=mul.Tensor(self=a0,other=a1);t1:f32=sum.dim_IntList(self=t0,dim=[0,1]);->t1"
//
// The order is that in which the native kernel of the overload folds a row-major tensor
// (runtime/kernel/native/reductions/fold.h). Which shapes fit is in expression_shape.h.
//
// Operations may read a reduction's value, if it folds the trailing dims: it is broadcast along
// them. Operations on such values and on operands with one element for each row are computed once
// for each row where ".row" says so (an RMS norm):
//
//   "t0:f32=pow.Tensor_Scalar(self=a0,exponent=2);t1:f32=mean.dim(self=t0,dim=[1]);"
//   "t2:f32.row=add.Tensor(self=t1,other=1e-06);t3:f32.row=rsqrt.default(self=t2);"
//   "t4:f32=mul.Tensor(self=a0,other=t3);->t4"
//
// Values of reductions and of such operations are row values. A row value that is a result has the
// dims that are not folded. A reduction folds no row value. So values have phases
// (expression_phases.h): what reads a reduction's value comes after all that this folds.
//
// An operand may have a window, a range of indices along one dim of that shape:
//
//   "a1=window(dim=3,begin=32,end=64);t0:bf16=mul.Tensor(self=a0,other=a1);->t0"
//
// The operand has the indices of its window only: its size along the dim is end - begin, its
// element at index i there is that at i - begin. At other indices it is 0, and no memory is read:
// it is what slice_backward makes of it. The operation index_in.range(dim,begin,end) tells whether
// an element lies in such a range; its value is bool. With it, where.self puts values next to each
// other as cat does. All ranges of an expression are along one dim. No operation of such an
// expression reads a row value.
//
// It is data, in plans too: text that is read and checked before anything runs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/dtype.h"
#include "src/base/status.h"

namespace dc::base {

enum class ExpressionArgumentKind : uint8_t { None, Operand, Value, Bool, Int, Float, Word, Ints };

struct ExpressionArgument {
  std::string name;  // in the overload's schema
  ExpressionArgumentKind kind = ExpressionArgumentKind::None;
  int64_t integer = 0;                 // Operand and Value: which; Bool: 0 or 1; Int
  double number = 0;                   // Float
  std::string word;                    // Word: letters, digits and _
  std::vector<int64_t> integers = {};  // Ints
  bool operator==(const ExpressionArgument&) const = default;
};

struct ExpressionOperation {
  DType dtype = DType::F32;  // of its value
  std::string overload;      // "mul.Tensor", of ATen
  std::vector<ExpressionArgument> arguments;
  bool is_row = false;  // an operation on row values, computed once for each row
  bool operator==(const ExpressionOperation&) const = default;
};

// Indices along a dim of the values: `begin` to the one before `end`.
struct IndexRange {
  int64_t dim = 0, begin = 0, end = 0;
  auto operator<=>(const IndexRange&) const = default;
};

struct Expression {
  static constexpr size_t kMostOperations = 64;
  static constexpr size_t kMostTensors = 16;  // that tensors() counts
  static constexpr size_t kMostReductions = 4;

  std::vector<ExpressionOperation> operations;
  std::vector<size_t> results;                // operations, each once
  std::map<size_t, IndexRange> windows = {};  // of the operands that have one

  size_t operands() const;  // a0 to the one before this
  // Operands, results, and row values that a kernel keeps for the elements of their row.
  size_t tensors() const;
  bool has_reductions() const;
  bool is_row_value(size_t value) const;  // of a reduction, or one that is_row
  // Whether operations read row values, or are computed once for each row.
  bool reads_rows() const;
  std::optional<int64_t> window_dim() const;  // of its ranges; none without
  std::string text() const;
  // What text() gives, and nothing else: every operand up to the last is read, every value is read
  // or a result. BadInput (65), DC1401, says what is wrong.
  static Result<Expression> parse(std::string_view text);
  bool operator==(const Expression&) const = default;
};

// Whether an operation of this overload folds dims: sum.dim_IntList, mean.dim, amax.default and
// amin.default. Its arguments are self and dim, in ascending order.
bool is_reduction(std::string_view overload);
// The dims that a reduction folds.
std::span<const int64_t> folded_dims(const ExpressionOperation& reduction);

// Of an operation index_in.range: its range. Nothing for others.
std::optional<IndexRange> index_range(const ExpressionOperation& operation);

// Whether the text can be an argument of kind Word.
bool is_expression_word(std::string_view text);

}  // namespace dc::base
