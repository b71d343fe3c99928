// Expressions drawn at random, and what tests of fused kernels do with them.
#pragma once

#include <bit>
#include <cmath>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/expression.h"
#include "tests/runtime/kernel/kernel_bench.h"

namespace dc::runtime::test {

using base::DType;
using base::Expression;
using base::ExpressionArgument;
using base::ExpressionArgumentKind;
using base::ExpressionOperation;
using Sizes = KernelBench::Sizes;

inline ExpressionArgument tensor(const std::string& name, bool is_value, size_t index) {
  ExpressionArgument argument;
  argument.name = name;
  argument.kind = is_value ? ExpressionArgumentKind::Value : ExpressionArgumentKind::Operand;
  argument.integer = static_cast<int64_t>(index);
  return argument;
}
inline ExpressionArgument number(const std::string& name, double value) {
  ExpressionArgument argument;
  argument.name = name;
  argument.kind = ExpressionArgumentKind::Float;
  argument.number = value;
  return argument;
}
inline ExpressionArgument word(const std::string& name, const std::string& value) {
  ExpressionArgument argument;
  argument.name = name;
  argument.kind = ExpressionArgumentKind::Word;
  argument.word = value;
  return argument;
}

struct RandomOperand {
  DType dtype = DType::F32;
  Sizes sizes, strides;
  std::optional<base::IndexRange> window = std::nullopt;
};

inline ExpressionArgument integers(const std::string& name, Sizes values) {
  ExpressionArgument argument;
  argument.name = name;
  argument.kind = ExpressionArgumentKind::Ints;
  argument.integers = std::move(values);
  return argument;
}
// Whether an expression ends with reductions, or has some that operations read.
enum class Ends : uint8_t { Elementwise, WithReductions, ReadsRows };

// Whether some operands have windows, and values tell where an element lies.
enum class Ranges : uint8_t { None, Some };

// An expression of up to 12 operations, whose operands are of any element types.
class RandomExpression {
 public:
  explicit RandomExpression(uint32_t seed, Ends ends = Ends::Elementwise,
                            Ranges ranges = Ranges::None)
      : random_(seed), ranges_(ranges) {
    shape = one_of<Sizes>({{5}, {1500}, {3, 7}, {4, 64}, {2, 3, 5}, {9, 300}, {2, 1, 700}, {1}});
    if (ends != Ends::Elementwise && below(2) == 0)
      shape = one_of<Sizes>({{200, 3},
                             {70, 65},
                             {2, 40, 17},
                             {1, 3000},
                             {3000, 1},
                             {64, 513},
                             {65, 1},
                             {3, 2, 2, 130}});
    if (ends == Ends::ReadsRows) {
      for (size_t i = 1 + below(shape.size()); i > 0; --i) row_dims_.push_back(0);
      for (size_t i = 0; i < row_dims_.size(); ++i)
        row_dims_[i] = static_cast<int64_t>(shape.size() - row_dims_.size() + i);
      if (shape[static_cast<size_t>(row_dims_[0])] != shape.back() && shape.back() == 1)
        shape.back() = 2;
      if (shape.back() == 1) shape.back() = 3;
      keeps_dims_ = true;
    }
    if (ranges_ == Ranges::Some) range_dim_ = below(shape.size());
    for (size_t i = 1 + below(4); i > 0; --i) operands.push_back(operand());
    for (size_t i = 1 + below(12); i > 0 || expression.operations.empty(); i -= i > 0 ? 1 : 0)
      add();
    if (ends == Ends::WithReductions) add_reductions();
    for (size_t i = 1 + below(3); i > 0 && ends == Ends::ReadsRows; --i) add_row_values();
    finish();
  }

  Expression expression;
  std::vector<RandomOperand> operands;
  Sizes shape;  // of values that are no reductions'
  std::vector<Sizes> result_sizes, result_strides;

  // Of the value of an operation.
  Sizes sizes_of(size_t operation) const {
    const ExpressionOperation& made = expression.operations[operation];
    if (!expression.is_row_value(operation)) return shape;
    const auto dims = made.is_row ? std::span<const int64_t>(row_dims_) : base::folded_dims(made);
    Sizes sizes;
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      const bool folds = std::ranges::count(dims, static_cast<int64_t>(dim)) != 0;
      if (!folds) sizes.push_back(shape[dim]);
      if (folds && keeps_dims_) sizes.push_back(1);
    }
    return sizes;
  }

  size_t below(size_t count) { return random_() % count; }
  template <typename T>
  T one_of(std::initializer_list<T> list) {
    return *(list.begin() + below(list.size()));
  }

 private:
  struct Ref {
    bool is_value = false;
    size_t index = 0;
    DType dtype = DType::F32;
  };

  RandomOperand operand() {
    RandomOperand made;
    made.dtype = one_of({DType::F32, DType::F32, DType::BF16, DType::F16, DType::I64, DType::Bool,
                         DType::F64, DType::I32});
    made.sizes = shape;
    for (int64_t& size : made.sizes)
      if (below(4) == 0) size = 1;
    if (below(6) == 0) made.sizes.erase(made.sizes.begin());
    if (below(8) == 0) made.sizes.clear();
    if (ranges_ == Ranges::Some && below(2) == 0) add_window(made);
    made.strides = strides_of(made.sizes);
    return made;
  }

  // Often halves.
  base::IndexRange range() {
    const int64_t size = shape[range_dim_], half = size / 2;
    base::IndexRange made{static_cast<int64_t>(range_dim_), 0, size};
    if (below(3) == 0)
      made.begin = static_cast<int64_t>(below(static_cast<size_t>(size)));
    else if (below(2) == 0)
      made.begin = half;
    const auto most = static_cast<size_t>(size - made.begin);
    if (below(3) == 0) made.end = made.begin + 1 + static_cast<int64_t>(below(most));
    if (made.begin == 0 && half > 0 && below(2) == 0) made.end = half;
    return made;
  }
  void add_window(RandomOperand& operand) {
    const size_t missing = shape.size() - std::min(operand.sizes.size(), shape.size());
    if (range_dim_ < missing) return;
    operand.window = range();
    operand.sizes[range_dim_ - missing] = operand.window->end - operand.window->begin;
  }

  // Dims in another order in memory, or with gaps.
  Sizes strides_of(const Sizes& sizes) {
    Sizes strides(sizes.size());
    std::vector<size_t> order(sizes.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = order.size() - 1 - i;
    if (below(3) == 0) std::shuffle(order.begin(), order.end(), random_);
    int64_t step = below(4) == 0 ? 2 : 1;
    for (const size_t dim : order) {
      strides[dim] = step;
      step *= sizes[dim];
      if (below(6) == 0) step += 3;
    }
    return strides;
  }

  Ref any() {
    const size_t at = below(operands.size() + expression.operations.size());
    if (at < operands.size()) return {false, at, operands[at].dtype};
    const size_t value = at - operands.size();
    return {true, value, expression.operations[value].dtype};
  }

  Ref value(DType dtype, const std::string& overload, std::vector<ExpressionArgument> arguments) {
    expression.operations.push_back({dtype, overload, std::move(arguments)});
    return {true, expression.operations.size() - 1, dtype};
  }
  Ref as(Ref from, DType dtype) {
    if (from.dtype == dtype) return from;
    return value(dtype, "_to_copy.default", {tensor("self", from.is_value, from.index)});
  }

  void add_range() {
    const base::IndexRange made = range();
    std::vector<ExpressionArgument> arguments;
    for (const auto& [name, integer] : std::initializer_list<std::pair<const char*, int64_t>>{
             {"dim", made.dim}, {"begin", made.begin}, {"end", made.end}}) {
      arguments.push_back(number(name, 0));
      arguments.back().kind = ExpressionArgumentKind::Int;
      arguments.back().integer = integer;
    }
    value(DType::Bool, "index_in.range", std::move(arguments));
  }

  void add() {
    if (ranges_ == Ranges::Some && below(5) == 0) return add_range();
    const Ref x = any();
    const auto self = tensor("self", x.is_value, x.index);
    if (!base::is_floating(x.dtype)) {
      as(x, one_of({DType::F32, DType::BF16, DType::I64, DType::Bool}));
      return;
    }
    switch (below(8)) {
      case 0:
        value(x.dtype,
              one_of({"silu.default", "neg.default", "exp.default", "tanh.default", "relu.default",
                      "rsqrt.default", "sigmoid.default"}),
              {self});
        return;
      case 1:
        value(x.dtype, "gelu.default",
              below(2) == 0 ? std::vector{self, word("approximate", "tanh")} : std::vector{self});
        return;
      case 2:
        value(x.dtype, one_of({"mul.Scalar", "sub.Scalar", "div.Scalar", "rsub.Scalar"}),
              {self, number("other", 0.75)});
        return;
      case 3:
        value(x.dtype, "clamp.default", {self, number("min", -0.5)});
        return;
      case 4:
        value(DType::Bool, one_of({"gt.Scalar", "le.Scalar", "ne.Scalar"}),
              {self, number("other", 0.25)});
        return;
      case 5:
        as(x, one_of({DType::F32, DType::BF16, DType::F16, DType::F64, DType::I64}));
        return;
      default:
        break;
    }
    const Ref y = as(any(), x.dtype);
    const auto other = tensor("other", y.is_value, y.index);
    if (below(3) == 0) {
      const Ref mask = as(any(), DType::Bool);
      value(x.dtype, "where.self", {tensor("condition", mask.is_value, mask.index), self, other});
      return;
    }
    const char* overload = one_of({"add.Tensor", "mul.Tensor", "sub.Tensor", "maximum.default"});
    std::vector<ExpressionArgument> arguments = {self, other};
    if (std::string_view(overload) == "add.Tensor" && below(2) == 0)
      arguments.push_back(number("alpha", 1.5));
    value(x.dtype, overload, std::move(arguments));
  }

  // Of some values, over leading or trailing dims.
  void add_reductions() {
    const size_t values = expression.operations.size(), count = 1 + below(3);
    const size_t cut = 1 + below(shape.size());
    Sizes dims;
    const bool trailing = below(2) == 0;
    for (size_t i = 0; i < cut; ++i)
      dims.push_back(static_cast<int64_t>(trailing ? shape.size() - cut + i : i));
    keeps_dims_ = below(2) == 0;
    for (size_t i = 0; i < count; ++i) {
      const Ref x = i == 0 || below(3) != 0 ? Ref{true, below(values), DType::F32} : any_of(values);
      const DType from = x.is_value ? expression.operations[x.index].dtype : x.dtype;
      const bool is_mean = base::is_floating(from) && below(3) == 0;
      const bool is_sum = is_mean || below(2) == 0;
      DType dtype = from;
      if (is_sum && !base::is_floating(from)) dtype = DType::I64;
      if (is_sum && below(6) == 0) dtype = one_of({DType::F32, DType::F64});
      if (is_sum && !is_mean && below(6) == 0) dtype = one_of({DType::I64, DType::Bool});
      const auto self = tensor("self", x.is_value, x.index);
      const char* overload = is_mean  ? "mean.dim"
                             : is_sum ? "sum.dim_IntList"
                                      : one_of({"amax.default", "amin.default"});
      value(dtype, overload, {self, integers("dim", dims)});
    }
  }
  // A reduction of a value, operations on its value for each row, and some that read them.
  void add_row_values() {
    std::vector<size_t> elements;
    for (size_t i = 0; i < expression.operations.size(); ++i)
      if (!expression.is_row_value(i)) elements.push_back(i);
    const size_t folded = elements[below(elements.size())];
    const DType from = expression.operations[folded].dtype;
    const bool is_mean = base::is_floating(from) && below(2) == 0;
    const char* overload = is_mean ? "mean.dim" : one_of({"amax.default", "amin.default"});
    Ref row = value(from, overload, {tensor("self", true, folded), integers("dim", row_dims_)});
    for (size_t i = below(4); i > 0; --i) {
      const size_t first = expression.operations.size();
      row = as(row, DType::F32);
      const size_t of_row = below(operands.size());
      const auto self = tensor("self", true, row.index);
      if (is_of_rows(operands[of_row]) && below(2) == 0) {
        const Ref other = as({false, of_row, operands[of_row].dtype}, DType::F32);
        row = value(DType::F32, "mul.Tensor", {self, tensor("other", other.is_value, other.index)});
      } else if (below(2) == 0) {
        row = value(DType::F32, "rsqrt.default", {self});
      } else {
        row = value(DType::F32, "add.Scalar", {self, number("other", 0.125)});
      }
      for (size_t made = first; made < expression.operations.size(); ++made)
        expression.operations[made].is_row = true;
    }
    const size_t other = elements[below(elements.size())];
    const Ref of_element = as({true, other, expression.operations[other].dtype}, DType::F32);
    const size_t first = expression.operations.size();
    const Ref of_row = as(row, DType::F32);
    if (first < expression.operations.size()) expression.operations[first].is_row = below(2) == 0;
    value(DType::F32, one_of({"add.Tensor", "mul.Tensor", "sub.Tensor"}),
          {tensor("self", true, of_element.index), tensor("other", true, of_row.index)});
    for (size_t i = below(3); i > 0; --i) value_of_elements();
  }
  // An operation on the last one's value and another one.
  void value_of_elements() {
    const size_t last = expression.operations.size() - 1;
    value(DType::F32, "mul.Tensor", {tensor("self", true, last), tensor("other", true, last)});
  }
  // Whether it has one element along folded dims.
  bool is_of_rows(const RandomOperand& operand) const {
    const size_t added = shape.size() - operand.sizes.size();
    return !operand.sizes.empty() && std::ranges::all_of(row_dims_, [&](int64_t dim) {
      const auto at = static_cast<size_t>(dim);
      return at < added || operand.sizes[at - added] == 1;
    });
  }
  // Of operands and the first `values` operations.
  Ref any_of(size_t values) {
    const size_t at = below(operands.size() + values);
    if (at < operands.size()) return {false, at, operands[at].dtype};
    return {true, at - operands.size(), expression.operations[at - operands.size()].dtype};
  }

  // What nothing reads is a result; operands that nothing reads go.
  void finish() {
    std::vector<bool> read(expression.operations.size());
    std::vector<int64_t> kept(operands.size(), -1);
    for (const ExpressionOperation& operation : expression.operations) {
      for (const ExpressionArgument& argument : operation.arguments) {
        const auto index = static_cast<size_t>(argument.integer);
        if (argument.kind == ExpressionArgumentKind::Value) read[index] = true;
        if (argument.kind == ExpressionArgumentKind::Operand) kept[index] = 0;
      }
    }
    std::vector<RandomOperand> left;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (kept[i] < 0) continue;
      kept[i] = static_cast<int64_t>(left.size());
      left.push_back(operands[i]);
    }
    operands = left;
    for (ExpressionOperation& operation : expression.operations) {
      for (ExpressionArgument& argument : operation.arguments) {
        if (argument.kind == ExpressionArgumentKind::Operand)
          argument.integer = kept[static_cast<size_t>(argument.integer)];
      }
    }
    bool is_known = false;  // the shape, by a result that is no reduction's
    for (size_t i = 0; i < read.size(); ++i) {
      const bool says_shape = i == 0 && operands.empty();
      if (read[i] && !says_shape && below(5) != 0) continue;
      expression.results.push_back(i);
      is_known = is_known || !expression.is_row_value(i);
    }
    if (!is_known && !operands.empty()) operands[0] = {operands[0].dtype, shape, strides_of(shape)};
    for (size_t i = 0; i < operands.size(); ++i)
      if (operands[i].window) expression.windows.emplace(i, *operands[i].window);
    for (const size_t i : expression.results) {
      result_sizes.push_back(sizes_of(i));
      result_strides.push_back(strides_of(result_sizes.back()));
    }
  }

  std::mt19937 random_;
  Ranges ranges_ = Ranges::None;
  size_t range_dim_ = 0;
  bool keeps_dims_ = false;  // of row values
  Sizes row_dims_;           // that are folded, where row values are read
};

inline void fill(KernelBench& bench, int32_t id, DType dtype, RandomExpression& draw) {
  const plan::Tensor& tensor = bench.plan().tensors[static_cast<size_t>(id)];
  const int64_t count = KernelBench::bytes(tensor) / base::byte_size(dtype);
  auto* bytes = bench.data<std::byte>(id);
  for (int64_t i = 0; i < count; ++i) {
    const float real = static_cast<float>(draw.below(2001)) / 500.0f - 2.0f;
    const auto put = [&](auto value) {
      std::memcpy(bytes + i * static_cast<int64_t>(sizeof value), &value, sizeof value);
    };
    if (dtype == DType::F32) put(draw.below(50) == 0 ? NAN : real);
    if (dtype == DType::F64) put(static_cast<double>(real));
    if (dtype == DType::BF16) put(static_cast<uint16_t>(std::bit_cast<uint32_t>(real) >> 16));
    if (dtype == DType::F16) put(static_cast<uint16_t>(0x3400 + draw.below(0x900)));
    if (dtype == DType::I64) put(static_cast<int64_t>(draw.below(9)) - 4);
    if (dtype == DType::I32) put(static_cast<int32_t>(draw.below(9)) - 4);
    if (dtype == DType::Bool) put(static_cast<uint8_t>(draw.below(2)));
  }
}

// Elements in row-major order, whatever the strides. All NaNs are one: which operand's NaN a sum or
// a product of two returns depends on how wide the loop is.
inline std::vector<std::string> elements(KernelBench& bench, int32_t id) {
  const plan::Tensor tensor = bench.plan().tensors[static_cast<size_t>(id)];
  const auto* bytes = bench.data<char>(id);
  const auto size = static_cast<size_t>(base::byte_size(tensor.dtype));
  std::vector<std::string> all;
  Sizes at(tensor.sizes.size());
  for (;;) {
    int64_t offset = 0;
    for (size_t dim = 0; dim < at.size(); ++dim) offset += at[dim] * tensor.strides[dim];
    all.emplace_back(bytes + offset * static_cast<int64_t>(size), size);
    if (tensor.dtype == DType::F32 && std::isnan(bench.data<float>(id)[offset])) all.back() = "NaN";
    if (tensor.dtype == DType::F64 && std::isnan(bench.data<double>(id)[offset]))
      all.back() = "NaN";
    if (tensor.dtype == DType::BF16 || tensor.dtype == DType::F16) {
      const uint16_t bits = bench.data<uint16_t>(id)[offset] & 0x7fff;
      if (bits > (tensor.dtype == DType::BF16 ? 0x7f80 : 0x7c00)) all.back() = "NaN";
    }
    size_t dim = at.size();
    while (dim > 0 && ++at[dim - 1] == tensor.sizes[dim - 1]) at[--dim] = 0;
    if (dim == 0) return all;
  }
}

inline plan::Instruction fused(const std::string& body, const std::vector<int32_t>& operands,
                               const std::vector<int32_t>& results) {
  plan::Instruction made = instruction("dc.fused", {}, results);
  made.provider = plan::Provider::Fused;
  for (size_t i = 0; i < operands.size(); ++i)
    made.args.push_back(tensor_arg(operands[i], "a" + std::to_string(i)));
  plan::Arg text;
  text.name = "body";
  text.kind = plan::ArgKind::String;
  text.s = body;
  made.args.push_back(text);
  return made;
}

}  // namespace dc::runtime::test
