#include "tests/fuzz/expression_mutation.h"

#include <iterator>
#include <limits>

#include "src/base/expression.h"

namespace dc::fuzz {
namespace {

using base::DType;
using base::Expression;
using base::ExpressionArgument;
using base::ExpressionOperation;
using Kind = base::ExpressionArgumentKind;

constexpr Kind kKinds[] = {Kind::None, Kind::Operand, Kind::Value, Kind::Bool,
                           Kind::Int,  Kind::Float,   Kind::Word,  Kind::Ints};
constexpr int64_t kIntegers[] = {0,  1,  2,  3,   15,
                                 16, 63, 64, 255, std::numeric_limits<int64_t>::max()};
constexpr double kFloats[] = {0.0,
                              -1.5,
                              3.0,
                              1e300,
                              std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::quiet_NaN()};
constexpr std::string_view kNames[] = {"self",  "other", "condition", "value", "grad_output",
                                       "alpha", "min",   "max",       "",      "a0"};

ExpressionArgument value(const char* name, size_t index) {
  ExpressionArgument argument;
  argument.name = name;
  argument.kind = Kind::Value;
  argument.integer = static_cast<int64_t>(index);
  return argument;
}

void change_argument(ExpressionOperation& operation, Choices& choices) {
  auto& arguments = operation.arguments;
  if (arguments.empty()) return;
  const size_t at = choices.below(arguments.size());
  ExpressionArgument& argument = arguments[at];
  switch (choices.below(7)) {
    case 6:
      argument.integers.push_back(one_of(choices, kIntegers));
      break;
    case 0:
      argument.kind = one_of(choices, kKinds);
      if (argument.word.empty()) argument.word = "tanh";
      break;
    case 1:
      argument.name = one_of(choices, kNames);
      break;
    case 2:
      arguments.erase(arguments.begin() + static_cast<ptrdiff_t>(at));
      break;
    case 3:
      arguments.push_back(ExpressionArgument(argument));
      break;
    case 4:
      argument.number = one_of(choices, kFloats);
      break;
    default:
      argument.integer = one_of(choices, kIntegers);
  }
}

// Many values that live at once: several of one value, then their sums.
void grow(Expression& expression, Choices& choices) {
  if (expression.operations.empty()) return;
  const size_t from = choices.below(expression.operations.size()), count = choices.below(40);
  const DType dtype = expression.operations[from].dtype;
  const size_t first = expression.operations.size();
  for (size_t i = 0; i < count; ++i)
    expression.operations.push_back({dtype, "neg.default", {value("self", from)}});
  for (size_t i = 1; i < count; ++i) {
    const size_t sum = i == 1 ? first : expression.operations.size() - 1;
    expression.operations.push_back(
        {dtype, "add.Tensor", {value("self", sum), value("other", first + i)}});
  }
  if (count > 0 && !expression.results.empty())
    expression.results.back() = expression.operations.size() - 1;
}

// A window where there is none, or another one.
void change_window(Expression& expression, Choices& choices) {
  const size_t operands = expression.operands();
  if (operands == 0) return;
  base::IndexRange& range = expression.windows[choices.below(operands)];
  if (range.end == 0) range.end = 1 + static_cast<int64_t>(choices.below(4));
  int64_t* const fields[] = {&range.dim, &range.begin, &range.end};
  *fields[choices.below(3)] = one_of(choices, kIntegers);
}

void change_results(Expression& expression, Choices& choices) {
  const size_t made = choices.below(expression.operations.size() + 1);
  if (choices.one_in(2) && !expression.results.empty()) {
    expression.results[choices.below(expression.results.size())] = made;
  } else if (choices.one_in(2)) {
    expression.results.push_back(made);
  } else if (!expression.results.empty()) {
    expression.results.pop_back();
  }
}

void change_expression(Expression& expression, Choices& choices) {
  if (expression.operations.empty()) return;
  const size_t at = choices.below(expression.operations.size());
  ExpressionOperation& operation = expression.operations[at];
  switch (choices.below(9)) {
    case 8:
      change_window(expression, choices);
      break;
    case 0:
      operation.dtype = one_of(choices, kElementTypes);
      break;
    case 1: {  // of any kernel, element-wise or not
      const std::string_view op = kernel_rows()[choices.below(kernel_rows().size())].op;
      operation.overload = op.substr(op.find('.') + 1);
      break;
    }
    case 2:
      change_results(expression, choices);
      break;
    case 3:
      grow(expression, choices);
      break;
    case 4:
      expression.operations.erase(expression.operations.begin() + static_cast<ptrdiff_t>(at));
      break;
    default:
      change_argument(operation, choices);
  }
}

void change_characters(std::string& text, Choices& choices) {
  constexpr std::string_view kSigns = "0123456789at.;:=,()->selfothr_bi-+eE\n";
  const size_t at = choices.below(text.size() + 1);
  const char sign = kSigns[choices.below(kSigns.size())];
  switch (choices.below(4)) {
    case 0:
      text.insert(at, 1, sign);
      break;
    case 1:
      text.erase(at, 1 + choices.below(4));
      break;
    case 2:
      text.insert(choices.below(text.size() + 1), text.substr(at, 1 + choices.below(40)));
      break;
    default:
      if (at < text.size()) text[at] = sign;
  }
}

}  // namespace

void mutate_expression(std::string& text, Choices& choices) {
  auto expression = Expression::parse(text);
  if (!expression.ok() || choices.one_in(4)) return change_characters(text, choices);
  for (size_t changes = 1 + choices.below(3); changes > 0; --changes)
    change_expression(*expression, choices);
  text = expression->text();
}

}  // namespace dc::fuzz
