// The text of an Expression:
//   expression = { operand "=window(dim=" integer ",begin=" integer ",end=" integer ");" }
//                { value ":" dtype [ ".row" ] "=" overload
//                  "(" [ argument { "," argument } ] ")" ";" }
//                "->" value { "," value }
//   argument   = name "=" ( "none" | "true" | "false" | operand | value | number | word | list )
//   list       = "[" [ integer { "," integer } ] "]"
//   operand    = "a" digits,  value = "t" digits
// A number with a point, an exponent, "inf" or "nan" is floating.
#include "src/base/expression.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

namespace dc::base {
namespace {

using Kind = ExpressionArgumentKind;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
}
bool is_reserved(std::string_view word) {
  constexpr std::string_view kReserved[] = {"none", "true", "false", "inf", "nan"};
  return std::ranges::count(kReserved, word) != 0;
}

template <typename Number>
bool read_number(std::string_view text, Number& value) {
  const char* end = text.data() + text.size();
  Number whole{};
  const std::from_chars_result read = std::from_chars(text.data(), end, whole);
  if (text.empty() || read.ec != std::errc() || read.ptr != end) return false;
  value = whole;
  return true;
}

constexpr size_t kMostDims = 64;  // of a reduction

constexpr std::string_view kReductions[] = {"amax.default", "amin.default", "mean.dim",
                                            "sum.dim_IntList"};

constexpr std::string_view kIndexInRange = "index_in.range";

// A letter and digits only, as operands and values are named.
bool names_tensor(std::string_view word) {
  return word.size() > 1 && (word[0] == 'a' || word[0] == 't') &&
         std::ranges::all_of(word.substr(1), is_digit);
}

// "a3" with the letter 'a' is 3.
bool read_index(std::string_view word, char letter, int64_t& index) {
  return word.size() > 1 && word[0] == letter && is_digit(word[1]) &&
         (word.size() == 2 || word[1] != '0') && read_number(word.substr(1), index);
}

std::string floating(double value) {
  if (std::isnan(value)) return "nan";
  char buffer[40];
  std::string text(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
  if (text.find_first_of(".enf") == std::string::npos) text += ".0";
  return text;
}

std::string text_of(const ExpressionArgument& argument) {
  switch (argument.kind) {
    case Kind::None:
      return "none";
    case Kind::Operand:
      return "a" + std::to_string(argument.integer);
    case Kind::Value:
      return "t" + std::to_string(argument.integer);
    case Kind::Bool:
      return argument.integer != 0 ? "true" : "false";
    case Kind::Int:
      return std::to_string(argument.integer);
    case Kind::Float:
      return floating(argument.number);
    case Kind::Word:
      return argument.word;
    case Kind::Ints: {
      std::string text = "[";
      for (size_t i = 0; i < argument.integers.size(); ++i)
        text += (i == 0 ? "" : ",") + std::to_string(argument.integers[i]);
      return text + "]";
    }
  }
  return "";
}

std::string text_of(const IndexRange& range) {
  return "(dim=" + std::to_string(range.dim) + ",begin=" + std::to_string(range.begin) +
         ",end=" + std::to_string(range.end) + ")";
}

class Parser {
 public:
  explicit Parser(std::string_view text) : whole_(text), rest_(text) {}

  Result<Expression> run() {
    while (ok_ && rest_.starts_with('a')) window();
    while (ok_ && !rest_.starts_with("->")) operation();
    take("->", "'->' before the results");
    do {
      result();
    } while (ok_ && skip(','));
    if (ok_ && !rest_.empty()) fail("the end was expected");
    check_uses();
    if (!ok_) {
      return Status(ErrorKind::BadInput, "DC1401",
                    "the expression '" + std::string(whole_.substr(0, 200)) +
                        "' is malformed at character " +
                        std::to_string(whole_.size() - rest_.size()) + ": " + problem_);
    }
    return std::move(made_);
  }

 private:
  void fail(std::string problem) {
    if (ok_) problem_ = std::move(problem);
    ok_ = false;
  }
  bool skip(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void take(std::string_view wanted, const std::string& what) {
    if (!ok_) return;
    if (!rest_.starts_with(wanted)) return fail(what + " was expected");
    rest_.remove_prefix(wanted.size());
  }
  std::string_view take_while(bool (*belongs)(char)) {
    const auto end = std::ranges::find_if_not(rest_, belongs);
    const std::string_view taken = rest_.substr(0, static_cast<size_t>(end - rest_.begin()));
    if (ok_) rest_.remove_prefix(taken.size());
    return taken;
  }
  std::string name(const char* what) {
    const std::string_view taken = take_while(is_name_char);
    if (taken.empty()) fail(std::string(what) + " was expected");
    return std::string(taken);
  }

  void window() {
    int64_t index = -1;
    const std::string label = name("an operand such as a0");
    if (!read_index(label, 'a', index) || index >= static_cast<int64_t>(Expression::kMostTensors))
      return fail("'" + label.substr(0, 40) + "' is no operand that can have a window");
    const auto operand = static_cast<size_t>(index);
    if (!made_.windows.empty() && made_.windows.rbegin()->first >= operand)
      fail("the windows are not in the order of the operands");
    IndexRange range;
    take("=window(dim=", "'=window(dim='");
    range.dim = integer();
    take(",begin=", "',begin='");
    range.begin = integer();
    take(",end=", "',end='");
    range.end = integer();
    take(");", "');'");
    if (ok_) made_.windows.emplace(operand, range);
  }
  int64_t integer() {
    const auto belongs = [](char c) { return c == '-' || is_digit(c); };
    int64_t value = 0;
    if (ok_ && !read_number(take_while(belongs), value)) fail("an integer was expected");
    return value;
  }

  void operation() {
    int64_t index = -1;
    const std::string label = name("a value such as t0");
    if (ok_ &&
        (!read_index(label, 't', index) || index != static_cast<int64_t>(made_.operations.size())))
      fail("the value of this operation must be t" + std::to_string(made_.operations.size()));
    if (made_.operations.size() == Expression::kMostOperations)
      fail("there are more than " + std::to_string(Expression::kMostOperations) + " operations");
    ExpressionOperation made;
    take(":", "':' and an element type");
    const std::string dtype = name("an element type");
    if (const auto known = dtype_from_name(dtype))
      made.dtype = *known;
    else
      fail("there is no element type '" + dtype + "'");
    made.is_row = skip('.');
    if (made.is_row) take("row", "'row'");
    take("=", "'=' and an operator");
    made.overload = name("an operator");
    take(".", "'.' and the overload of the operator");
    made.overload += "." + name("an overload");
    take("(", "'(' and arguments");
    while (ok_ && !rest_.starts_with(')')) {
      if (!made.arguments.empty()) take(",", "',' or ')'");
      if (ok_) made.arguments.push_back(argument());
    }
    take(")", "')'");
    take(";", "';'");
    if (ok_) made_.operations.push_back(std::move(made));
  }

  ExpressionArgument argument() {
    ExpressionArgument made;
    made.name = name("the name of an argument");
    take("=", "'=' and a value");
    if (!ok_) return made;
    if (skip('[')) {
      list(made);
      return made;
    }
    const auto belongs = [](char c) { return c != ',' && c != ')'; };
    const std::string_view value = take_while(belongs);
    if (value == "none") return made;
    if (value == "true" || value == "false") {
      made.kind = Kind::Bool;
      made.integer = value == "true" ? 1 : 0;
    } else if (read_index(value, 'a', made.integer)) {
      made.kind = Kind::Operand;
      if (made.integer >= static_cast<int64_t>(Expression::kMostTensors))
        fail("there are too many operands");
    } else if (read_index(value, 't', made.integer)) {
      made.kind = Kind::Value;
      if (made.integer >= static_cast<int64_t>(made_.operations.size()))
        fail("the value " + std::string(value) + " does not come before its use");
    } else if (read_number(value, made.integer)) {
      made.kind = Kind::Int;
    } else if (read_number(value, made.number)) {
      made.kind = Kind::Float;
    } else if (is_expression_word(value)) {
      made.kind = Kind::Word;
      made.word = value;
    } else {
      fail("'" + std::string(value.substr(0, 40)) + "' is no value of an argument");
    }
    return made;
  }

  void list(ExpressionArgument& made) {
    made.kind = Kind::Ints;
    const auto belongs = [](char c) { return c != ',' && c != ']'; };
    while (ok_ && !rest_.starts_with(']')) {
      if (!made.integers.empty()) take(",", "',' or ']'");
      if (!read_number(take_while(belongs), made.integers.emplace_back()))
        fail("an integer was expected");
      if (made.integers.size() > kMostDims) fail("the list is too long");
    }
    take("]", "']'");
  }

  void result() {
    int64_t index = -1;
    const std::string label = name("a value such as t0");
    if (!ok_) return;
    if (!read_index(label, 't', index) || index >= static_cast<int64_t>(made_.operations.size()))
      return fail("the result " + label + " is no value of an operation");
    if (std::ranges::count(made_.results, static_cast<size_t>(index)) != 0)
      return fail("the value " + label + " is a result twice");
    made_.results.push_back(static_cast<size_t>(index));
  }

  void check_uses() {
    if (!ok_) return;
    std::vector<bool> reads_operand(made_.operands()), is_read(made_.operations.size());
    for (const ExpressionOperation& operation : made_.operations) {
      for (const ExpressionArgument& argument : operation.arguments) {
        const auto index = static_cast<size_t>(argument.integer);
        if (argument.kind == Kind::Operand) reads_operand[index] = true;
        if (argument.kind == Kind::Value) is_read[index] = true;
      }
    }
    check_rows();
    check_reductions();
    check_ranges();
    for (const size_t result : made_.results) is_read[result] = true;
    const auto unread = [&](const std::vector<bool>& read, const char* letter) {
      const auto found = std::ranges::find(read, false);
      if (found != read.end())
        fail(letter + std::to_string(found - read.begin()) + " is never read");
    };
    unread(reads_operand, "a");
    unread(is_read, "t");
    if (made_.tensors() > Expression::kMostTensors)
      fail("there are more than " + std::to_string(Expression::kMostTensors) +
           " operands, results and row values that are read for each element");
  }

  // Row values are made of row values and operands, and nothing folds them.
  void check_rows() {
    for (size_t i = 0; i < made_.operations.size(); ++i) {
      const ExpressionOperation& operation = made_.operations[i];
      const std::string own = "t" + std::to_string(i);
      const bool folds = is_reduction(operation.overload);
      if (operation.is_row && folds) fail(own + " is a reduction, and is marked as a row's");
      if (operation.is_row && !made_.has_reductions())
        fail(own + " is computed for each row, but there are no reductions");
      for (const ExpressionArgument& argument : operation.arguments) {
        if (argument.kind != Kind::Value) continue;
        const auto index = static_cast<size_t>(argument.integer);
        std::string wrong = own;
        if (folds && made_.is_row_value(index))
          fail(wrong.append(" folds t").append(std::to_string(index)) +
               ", which has one element for each row");
        if (operation.is_row && !made_.is_row_value(index))
          fail(
              wrong.append(" is computed for each row, but reads t").append(std::to_string(index)) +
              ", which is not");
      }
    }
  }

  void check_reductions() {
    const ExpressionOperation* first = nullptr;
    size_t count = 0;
    for (const ExpressionOperation& operation : made_.operations) {
      if (!is_reduction(operation.overload)) continue;
      ++count;
      if (first == nullptr) first = &operation;
      const std::span<const int64_t> dims = folded_dims(operation);
      if (!is_well_formed(operation)) fail("the arguments of a reduction are wrong");
      if (!std::ranges::equal(dims, folded_dims(*first)))
        fail("its reductions fold different dims");
    }
    if (count > Expression::kMostReductions)
      fail("there are more than " + std::to_string(Expression::kMostReductions) + " reductions");
  }
  void check_ranges() {
    std::vector<IndexRange> ranges;
    for (const auto& [operand, range] : made_.windows) {
      if (operand >= made_.operands())
        fail("a" + std::to_string(operand) + " has a window and is never read");
      ranges.push_back(range);
    }
    for (const ExpressionOperation& operation : made_.operations) {
      if (operation.overload != kIndexInRange) continue;
      if (!names_range(operation)) return fail("the arguments of index_in.range are wrong");
      if (operation.dtype != DType::Bool) fail("the value of index_in.range must be bool");
      ranges.push_back(*index_range(operation));
    }
    for (const IndexRange& range : ranges) {
      if (range.dim < 0 || range.dim >= static_cast<int64_t>(kMostDims) || range.begin < 0 ||
          range.begin >= range.end)
        fail("no indices are in the range " + text_of(range));
      if (range.dim != ranges[0].dim) fail("its windows and ranges are along different dims");
    }
    if (!ranges.empty() && made_.reads_rows())
      fail("it has windows or ranges, and its operations read row values");
  }
  static bool names_range(const ExpressionOperation& operation) {
    constexpr std::string_view kNames[] = {"dim", "begin", "end"};
    return std::ranges::equal(operation.arguments, kNames, [](const auto& argument, auto wanted) {
      return argument.kind == Kind::Int && argument.name == wanted;
    });
  }

  // A tensor, and dims in ascending order.
  static bool is_well_formed(const ExpressionOperation& reduction) {
    const auto& arguments = reduction.arguments;
    if (arguments.empty() || arguments[0].name != "self" ||
        (arguments[0].kind != Kind::Operand && arguments[0].kind != Kind::Value))
      return false;
    const std::span<const int64_t> dims = folded_dims(reduction);
    return arguments.size() == 2 && arguments[1].name == "dim" && !dims.empty() &&
           std::ranges::adjacent_find(dims, std::greater_equal<>()) == dims.end() &&
           dims.front() >= 0 && dims.back() < static_cast<int64_t>(kMostDims);
  }

  std::string_view whole_, rest_;
  Expression made_;
  bool ok_ = true;
  std::string problem_;
};

}  // namespace

bool is_reduction(std::string_view overload) {
  return std::ranges::count(kReductions, overload) != 0;
}

std::span<const int64_t> folded_dims(const ExpressionOperation& reduction) {
  for (const ExpressionArgument& argument : reduction.arguments)
    if (argument.kind == Kind::Ints) return argument.integers;
  return {};
}

std::optional<IndexRange> index_range(const ExpressionOperation& operation) {
  if (operation.overload != kIndexInRange || operation.arguments.size() != 3) return std::nullopt;
  const auto& arguments = operation.arguments;
  return IndexRange{arguments[0].integer, arguments[1].integer, arguments[2].integer};
}

bool is_expression_word(std::string_view text) {
  return !text.empty() && !is_digit(text[0]) && std::ranges::all_of(text, is_name_char) &&
         !is_reserved(text) && !names_tensor(text);
}

size_t Expression::operands() const {
  int64_t count = 0;
  for (const ExpressionOperation& operation : operations) {
    for (const ExpressionArgument& argument : operation.arguments) {
      if (argument.kind == Kind::Operand) count = std::max(count, argument.integer + 1);
    }
  }
  return static_cast<size_t>(count);
}

bool Expression::has_reductions() const {
  return std::ranges::any_of(operations, [](const ExpressionOperation& operation) {
    return is_reduction(operation.overload);
  });
}

bool Expression::is_row_value(size_t value) const {
  return operations[value].is_row || is_reduction(operations[value].overload);
}

bool Expression::reads_rows() const {
  return std::ranges::any_of(operations, [this](const ExpressionOperation& operation) {
    return operation.is_row || std::ranges::any_of(operation.arguments, [this](const auto& read) {
             return read.kind == Kind::Value && is_row_value(static_cast<size_t>(read.integer));
           });
  });
}

size_t Expression::tensors() const {
  std::vector<bool> kept(operations.size());
  for (const size_t result : results) kept[result] = true;
  for (const ExpressionOperation& operation : operations) {
    for (const ExpressionArgument& read : operation.arguments) {
      const auto index = static_cast<size_t>(read.integer);
      if (read.kind != Kind::Value || !is_row_value(index)) continue;
      if (!operation.is_row || is_reduction(operations[index].overload)) kept[index] = true;
    }
  }
  return operands() + static_cast<size_t>(std::ranges::count(kept, true));
}

std::optional<int64_t> Expression::window_dim() const {
  if (!windows.empty()) return windows.begin()->second.dim;
  for (const ExpressionOperation& operation : operations)
    if (const auto range = index_range(operation)) return range->dim;
  return std::nullopt;
}

std::string Expression::text() const {
  std::string text;
  for (const auto& [operand, range] : windows)
    text += "a" + std::to_string(operand) + "=window" + text_of(range) + ";";
  for (size_t i = 0; i < operations.size(); ++i) {
    const ExpressionOperation& operation = operations[i];
    text += "t" + std::to_string(i) + ":" + std::string(name(operation.dtype)) +
            (operation.is_row ? ".row=" : "=") + operation.overload + "(";
    for (size_t j = 0; j < operation.arguments.size(); ++j) {
      const ExpressionArgument& argument = operation.arguments[j];
      text += (j == 0 ? "" : ",") + argument.name + "=" + text_of(argument);
    }
    text += ");";
  }
  text += "->";
  for (size_t i = 0; i < results.size(); ++i)
    text += (i == 0 ? "t" : ",t") + std::to_string(results[i]);
  return text;
}

Result<Expression> Expression::parse(std::string_view text) { return Parser(text).run(); }

}  // namespace dc::base
