#include "src/frontend/symbolic.h"

#include <cctype>
#include <charconv>
#include <vector>

#include "src/frontend/rational.h"

namespace dc::frontend {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;

constexpr int kMostDepth = 100;

// What two recursive readers share.
class Text {
 public:
  explicit Text(std::string_view text) : rest_(text) {}

  bool take(std::string_view token) {
    skip_spaces();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  bool at_end() {
    skip_spaces();
    return rest_.empty();
  }
  std::string_view word() {
    skip_spaces();
    size_t size = 0;
    while (size < rest_.size() && (std::isalnum(static_cast<unsigned char>(rest_[size])) != 0 ||
                                   rest_[size] == '_' || rest_[size] == '.')) {
      ++size;
    }
    return cut(size);
  }
  std::optional<int64_t> integer() {
    skip_spaces();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) return std::nullopt;
    cut(static_cast<size_t>(end - rest_.data()));
    return value;
  }
  // Between single quotes.
  std::optional<std::string_view> quoted() {
    if (!take("'")) return std::nullopt;
    const size_t size = rest_.find('\'');
    if (size == std::string_view::npos) return std::nullopt;
    const std::string_view text = cut(size);
    cut(1);
    return text;
  }

 private:
  void skip_spaces() {
    while (!rest_.empty() && rest_[0] == ' ') rest_.remove_prefix(1);
  }
  std::string_view cut(size_t size) {
    const std::string_view head = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return head;
  }
  std::string_view rest_;
};

Exact fold(const std::vector<Exact>& values, Exact (*combine)(Exact, Exact)) {
  Exact result = values.empty() ? std::nullopt : values[0];
  for (size_t i = 1; i < values.size(); ++i) result = combine(result, values[i]);
  return result;
}

Exact extreme(const std::vector<Exact>& values, int wanted) {
  Exact result = values.empty() ? std::nullopt : values[0];
  for (size_t i = 1; i < values.size(); ++i) {
    const std::optional<int> order = compare(values[i], result);
    if (!order) return std::nullopt;
    if (*order == wanted) result = values[i];
  }
  return result;
}

Exact relation(std::string_view name, const std::vector<Exact>& values) {
  if (values.size() != 2) return std::nullopt;
  const std::optional<int> order = compare(values[0], values[1]);
  if (!order) return std::nullopt;
  if (name == "Equality" || name == "Eq") return truth(*order == 0);
  if (name == "Unequality" || name == "Ne") return truth(*order != 0);
  if (name == "GreaterThan") return truth(*order >= 0);
  if (name == "StrictGreaterThan") return truth(*order > 0);
  if (name == "LessThan") return truth(*order <= 0);
  if (name == "StrictLessThan") return truth(*order < 0);
  return std::nullopt;
}

Exact logic(std::string_view name, const std::vector<Exact>& values) {
  bool all = true, any = false;
  for (const Exact& value : values) {
    if (!value) return std::nullopt;
    all = all && value->numerator != 0;
    any = any || value->numerator != 0;
  }
  if (name == "And") return truth(all);
  if (name == "Or") return truth(any);
  return name == "Not" && values.size() == 1 ? truth(!any) : std::nullopt;
}

Exact value_of_call(std::string_view name, const std::vector<Exact>& values) {
  const size_t count = values.size();
  if (name == "Add") return fold(values, add);
  if (name == "Mul") return fold(values, multiply);
  if (name == "Max" || name == "Min") return extreme(values, name == "Max" ? 1 : -1);
  if (name == "And" || name == "Or" || name == "Not") return logic(name, values);
  if (count == 1) {
    if (name == "Integer" || name == "ToFloat" || name == "Identity") return values[0];
    if (name == "FloorToInt" || name == "floor") return floor_divide(values[0], Number{1, 1});
    if (name == "CeilToInt" || name == "ceiling")
      return negate(floor_divide(negate(values[0]), Number{1, 1}));
  }
  if (count == 2) {
    if (name == "Pow" || name == "PowByNatural") return power(values[0], values[1]);
    if (name == "FloorDiv" || name == "CleanDiv") return floor_divide(values[0], values[1]);
    if (name == "CeilDiv") return negate(floor_divide(negate(values[0]), values[1]));
    if (name == "Mod" || name == "PythonMod") return modulo(values[0], values[1]);
    if (name == "Rational" || name == "IntTrueDiv" || name == "FloatTrueDiv")
      return divide(values[0], values[1]);
  }
  if (count == 3 && name == "ModularIndexing")
    return modulo(floor_divide(values[0], values[1]), values[2]);
  return relation(name, values);
}

// Reads srepr and evaluates it on the way.
class Srepr {
 public:
  Srepr(std::string_view text, const Symbols& symbols) : text_(text), symbols_(symbols) {}

  Exact whole() {
    const Exact value = expression(0);
    return text_.at_end() ? value : std::nullopt;
  }

 private:
  Exact expression(int depth) {
    if (depth > kMostDepth) return std::nullopt;
    if (const auto number = text_.integer()) return Number{*number, 1};
    const std::string_view name = text_.word();
    if (name == "true" || name == "false") return truth(name == "true");
    if (!text_.take("(")) return std::nullopt;
    if (name == "Symbol") return symbol();
    std::vector<Exact> values;
    while (!text_.take(")")) {
      if (!values.empty() && !text_.take(",")) return std::nullopt;
      values.push_back(expression(depth + 1));
      if (!values.back()) return std::nullopt;
    }
    return value_of_call(name, values);
  }

  // 's0', positive=True, integer=True)
  Exact symbol() {
    const auto name = text_.quoted();
    if (!name) return std::nullopt;
    while (!text_.take(")")) {
      if (!text_.take(",") || text_.word().empty() || !text_.take("=") || text_.word().empty())
        return std::nullopt;
    }
    const auto found = symbols_.find(*name);
    return found == symbols_.end() ? std::nullopt : Exact(Number{found->second, 1});
  }

  Text text_;
  const Symbols& symbols_;
};

// Reads Python: comparisons of sums of products.
class Guard {
 public:
  Guard(std::string_view text, const SizeOf& size_of) : text_(text), size_of_(size_of) {}

  Exact whole() {
    const Exact value = disjunction(0);
    return text_.at_end() ? value : std::nullopt;
  }

 private:
  Exact disjunction(int depth) {
    std::vector<Exact> parts = {conjunction(depth)};
    while (text_.take("or ")) parts.push_back(conjunction(depth));
    return parts.size() == 1 ? parts[0] : logic("Or", parts);
  }
  Exact conjunction(int depth) {
    std::vector<Exact> parts = {negation(depth)};
    while (text_.take("and ")) parts.push_back(negation(depth));
    return parts.size() == 1 ? parts[0] : logic("And", parts);
  }
  Exact negation(int depth) {
    if (depth > kMostDepth) return std::nullopt;
    if (text_.take("not ")) return logic("Not", {negation(depth + 1)});
    return comparison(depth);
  }
  // Also a chain: 2 <= x <= 8.
  Exact comparison(int depth) {
    Exact left = sum(depth), result;
    for (;;) {
      std::string_view name;
      for (const auto& [token, relation_name] : {std::pair{"==", "Eq"},
                                                 {"!=", "Ne"},
                                                 {"<=", "LessThan"},
                                                 {">=", "GreaterThan"},
                                                 {"<", "StrictLessThan"},
                                                 {">", "StrictGreaterThan"}}) {
        if (name.empty() && text_.take(token)) name = relation_name;
      }
      if (name.empty()) return result ? result : left;
      const Exact right = sum(depth);
      const Exact here = relation(name, {left, right});
      if (!here) return std::nullopt;
      result = result ? logic("And", {result, here}) : here;
      left = right;
    }
  }
  Exact sum(int depth) {
    Exact value = product(depth);
    for (;;) {
      if (text_.take("+")) {
        value = add(value, product(depth));
      } else if (text_.take("-")) {
        value = add(value, negate(product(depth)));
      } else {
        return value;
      }
    }
  }
  Exact product(int depth) {
    Exact value = factor(depth);
    for (;;) {
      if (text_.take("**")) {
        value = power(value, factor(depth));
      } else if (text_.take("*")) {
        value = multiply(value, factor(depth));
      } else if (text_.take("//")) {
        value = floor_divide(value, factor(depth));
      } else if (text_.take("/")) {
        value = divide(value, factor(depth));
      } else if (text_.take("%")) {
        value = modulo(value, factor(depth));
      } else {
        return value;
      }
    }
  }
  Exact factor(int depth) {
    if (depth > kMostDepth) return std::nullopt;
    if (text_.take("(")) {
      const Exact value = disjunction(depth + 1);
      return text_.take(")") ? value : std::nullopt;
    }
    if (const auto number = text_.integer()) return Number{*number, 1};
    if (text_.take("-")) return negate(factor(depth + 1));
    if (text_.take("L[")) return size();
    return call(text_.word(), depth);
  }
  // 'x'].size()[0]
  Exact size() {
    const auto input = text_.quoted();
    if (!input || !text_.take("].size()[")) return std::nullopt;
    const auto dim = text_.integer();
    if (!dim || !text_.take("]")) return std::nullopt;
    const std::optional<int64_t> size = size_of_(*input, *dim);
    return size ? Exact(Number{*size, 1}) : std::nullopt;
  }
  Exact call(std::string_view name, int depth) {
    if (!text_.take("(")) return std::nullopt;
    std::vector<Exact> values;
    while (!text_.take(")")) {
      if (!values.empty() && !text_.take(",")) return std::nullopt;
      values.push_back(disjunction(depth + 1));
      if (!values.back()) return std::nullopt;
    }
    if (name == "max" || name == "min") return extreme(values, name == "max" ? 1 : -1);
    return value_of_call(name, values);
  }

  Text text_;
  const SizeOf& size_of_;
};

}  // namespace

std::set<std::string> symbols_of(std::string_view expression) {
  constexpr std::string_view kStart = "Symbol('";
  std::set<std::string> found;
  for (size_t at = expression.find(kStart); at != std::string_view::npos;
       at = expression.find(kStart, at)) {
    at += kStart.size();
    found.emplace(expression.substr(at, expression.find('\'', at) - at));
  }
  return found;
}

Result<Number> evaluate(std::string_view expression, const Symbols& symbols) {
  if (const Exact value = Srepr(expression, symbols).whole()) return *value;
  return Status(ErrorKind::BadInput, "DC2047",
                "the size '" + std::string(expression.substr(0, 200)) +
                    "' cannot be computed from the sizes that were given; export the model with "
                    "static shapes");
}

std::optional<bool> holds(std::string_view guard, const SizeOf& size_of) {
  const Exact value = Guard(guard, size_of).whole();
  if (!value) return std::nullopt;
  return value->numerator != 0;
}

}  // namespace dc::frontend
