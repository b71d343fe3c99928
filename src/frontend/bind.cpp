#include "src/frontend/bind.h"

#include <algorithm>
#include <set>

#include "src/frontend/arguments.h"
#include "src/frontend/checks.h"
#include "src/frontend/symbolic.h"

namespace dc::frontend {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;

constexpr int64_t kMostSize = int64_t{1} << 24;  // of a size that is searched for

Status contradiction(const std::string& what) {
  return Status(ErrorKind::BadConfig, "DC2048", what);
}

// A size of a user input: the expression it is.
struct InputDim {
  std::string label;  // "ids.0"
  std::string expression;
};

class Binder {
 public:
  Binder(RawModel& model, const Description& description, std::vector<std::string>& notes)
      : model_(model), description_(description), notes_(notes) {}

  Status run(const std::vector<DimSize>& dims) {
    collect_input_dims();
    collect_symbols();
    if (wanted_.empty()) {
      if (dims.empty()) return bind_numbers();
      return contradiction("a size is given for dim '" + dims[0].name +
                           "', but all shapes of the archive are fixed; leave out --dim");
    }
    for (const DimSize& dim : dims) DC_RETURN_IF_ERROR(assign(dim));
    for (const std::string& symbol : wanted_) {
      if (!sizes_.contains(symbol)) return missing();
    }
    DC_RETURN_IF_ERROR(check_ranges());
    DC_RETURN_IF_ERROR(bind_tensors());
    DC_RETURN_IF_ERROR(bind_numbers());
    DC_RETURN_IF_ERROR(check_guards());
    notes_.push_back("dims: " + bound());
    return base::ok_status();
  }

 private:
  const std::string& text(Name name) const { return model_.names.text(name); }

  void collect_input_dims() {
    for (const RawInput& input : model_.inputs) {
      if (input.kind != RawInputKind::User || input.value == 0) continue;
      const auto tensor = model_.tensors.find(input.value);
      if (tensor == model_.tensors.end()) continue;
      for (const RawExtent& extent : tensor->second.symbolic) {
        if (extent.kind != ExtentKind::Size) continue;
        inputs_.push_back(
            {text(input.value) + "." + std::to_string(extent.dim), extent.expression});
      }
    }
  }

  // Those that a size or a number depends on.
  void collect_symbols() {
    for (const auto& [name, tensor] : model_.tensors) {
      for (const RawExtent& extent : tensor.symbolic) wanted_.merge(symbols_of(extent.expression));
    }
    for (const auto& [name, expression] : model_.expressions) wanted_.merge(symbols_of(expression));
  }

  bool is_symbol(const std::string& expression, const std::string& symbol) const {
    return expression.starts_with("Symbol('" + symbol + "'") &&
           expression.find('(', 7) == std::string::npos;
  }

  Status assign(const DimSize& dim) {
    const auto named = description_.dims.find(dim.name);
    const std::string& symbol = named == description_.dims.end() ? dim.name : named->second;
    if (wanted_.contains(symbol)) return set(symbol, dim.size, dim.name);
    for (const InputDim& input : inputs_) {
      if (input.label == dim.name) return solve(input, dim);
    }
    return contradiction("the archive has no dim '" + dim.name + "'; it has " + known());
  }

  Status set(const std::string& symbol, int64_t size, const std::string& name) {
    const auto [place, is_new] = sizes_.emplace(symbol, size);
    if (is_new || place->second == size) return base::ok_status();
    return contradiction("dim '" + name + "' is " + std::to_string(size) +
                         ", but it is the same as " + label(symbol) + ", which is " +
                         std::to_string(place->second) + "; give one size");
  }

  // The size of the symbol with which the input's dim is as long as asked for.
  Status solve(const InputDim& input, const DimSize& dim) {
    const std::set<std::string> symbols = symbols_of(input.expression);
    if (symbols.size() != 1) {
      return contradiction("dim '" + dim.name +
                           "' depends on several others; give those: " + known());
    }
    const std::string& symbol = *symbols.begin();
    if (is_symbol(input.expression, symbol)) return set(symbol, dim.size, dim.name);
    for (int64_t size = 0; size <= std::min(dim.size, kMostSize); ++size) {
      const Result<Number> value = evaluate(input.expression, {{symbol, size}});
      if (value.ok() && value->is_integer() && value->numerator == dim.size)
        return set(symbol, size, dim.name);
    }
    return contradiction("dim '" + dim.name + "' cannot be " + std::to_string(dim.size) +
                         ": the archive says that it is " + input.expression +
                         "; choose a size that this can be");
  }

  // The name of a symbol in messages: "batch", or the first input dim of that size, or the symbol
  // itself.
  std::string label(const std::string& symbol) const {
    for (const auto& [name, known] : description_.dims) {
      if (known == symbol) return name;
    }
    for (const InputDim& input : inputs_) {
      if (is_symbol(input.expression, symbol)) return input.label;
    }
    for (const InputDim& input : inputs_) {
      if (symbols_of(input.expression).contains(symbol)) return input.label;
    }
    return symbol;
  }

  std::string range_text(const std::string& symbol) const {
    const auto found = model_.ranges.find(symbol);
    if (found == model_.ranges.end()) return "any size";
    const auto& [low, high] = found->second;
    if (low && high) return std::to_string(*low) + " to " + std::to_string(*high);
    if (high) return "at most " + std::to_string(*high);
    return low ? "at least " + std::to_string(*low) : "any size";
  }

  // "batch (s77: 2 to 64; ids.0, labels.0), ..."
  std::string known() const {
    std::string list;
    for (const std::string& symbol : wanted_) {
      list +=
          (list.empty() ? "" : ", ") + label(symbol) + " (" + symbol + ", " + range_text(symbol);
      for (const InputDim& input : inputs_) {
        if (symbols_of(input.expression).contains(symbol)) list += ", " + input.label;
      }
      list += ")";
    }
    return list;
  }

  Status missing() const {
    std::string example;
    for (const std::string& symbol : wanted_) {
      if (!sizes_.contains(symbol)) example += " --dim " + label(symbol) + "=SIZE";
    }
    return Status(
        ErrorKind::BadConfig, "DC2044",
        "the archive has dims without a size: " + known() + "; give each one a size:" + example);
  }

  Status check_ranges() const {
    for (const auto& [symbol, size] : sizes_) {
      const auto found = model_.ranges.find(symbol);
      const RawRange range = found == model_.ranges.end() ? RawRange() : found->second;
      if (size >= std::max<int64_t>(range.low.value_or(1), 1) && size <= range.high.value_or(size))
        continue;
      return contradiction("dim '" + label(symbol) + "' is " + std::to_string(size) +
                           ", but the archive was exported for " + range_text(symbol) + "; " +
                           cure(size));
    }
    return base::ok_status();
  }

  // A dim of one element broadcasts, so PyTorch traces another graph for it.
  static std::string cure(int64_t size) {
    if (size > 1) return "choose a size in this range, or export with another";
    return "PyTorch's export keeps dims below 2 out of dynamic shapes, since they broadcast and "
           "need "
           "another graph: choose a size in this range, or export with this size fixed";
  }

  Result<int64_t> integer(const std::string& expression) const {
    DC_ASSIGN_OR_RETURN(const Number value, evaluate(expression, sizes_));
    if (value.is_integer() && value.numerator >= 0) return value.numerator;
    return contradiction("the size '" + expression + "' is no whole number with " + bound() +
                         "; choose other sizes");
  }

  Status bind_tensors() {
    for (auto& [name, tensor] : model_.tensors) {
      if (tensor.symbolic.empty()) continue;
      for (const RawExtent& extent : tensor.symbolic) {
        DC_ASSIGN_OR_RETURN(const int64_t value, integer(extent.expression));
        if (extent.kind == ExtentKind::Size) tensor.shape[extent.dim] = value;
        if (extent.kind == ExtentKind::Stride) tensor.strides[extent.dim] = value;
        if (extent.kind == ExtentKind::Offset) tensor.offset = value;
      }
      tensor.symbolic.clear();
      if (!is_addressable(tensor)) return malformed("a tensor is larger than any memory");
    }
    return base::ok_status();
  }

  // Symbolic numbers become plain ones where nodes read them; what computed them goes.
  Status bind_numbers() {
    std::vector<RawNode> kept;
    for (RawNode& node : model_.nodes) {
      if (computes_number(node)) continue;
      if (overload_of(text(node.target)).starts_with("aten._assert_scalar")) {
        DC_RETURN_IF_ERROR(check_assertion(node));
        continue;
      }
      for (RawArg& arg : node.args) DC_RETURN_IF_ERROR(bind_argument(arg));
      kept.push_back(std::move(node));
    }
    model_.nodes = std::move(kept);
    return base::ok_status();
  }

  bool computes_number(const RawNode& node) const {
    const std::string_view overload = overload_of(text(node.target));
    const bool tensors = std::any_of(node.results.begin(), node.results.end(),
                                     [](Name result) { return result >= 0; });
    return !tensors && (overload.starts_with("_operator.") || overload.starts_with("torch.sym_") ||
                        overload.starts_with("math.") || overload.starts_with("aten.sym_") ||
                        overload.starts_with("aten.sym_constrain_range"));
  }

  Result<Number> number(Name name) const {
    const auto plain = model_.integers.find(name);
    if (plain != model_.integers.end()) return Number{plain->second, 1};
    const auto found = model_.expressions.find(name);
    if (found == model_.expressions.end())
      return malformed("the number " + text(name) + " is missing");
    return evaluate(found->second, sizes_);
  }

  Status bind_argument(RawArg& arg) {
    for (const auto& [position, name] : arg.symbols) {
      DC_ASSIGN_OR_RETURN(const Number value, number(name));
      if (auto* real = std::get_if<double>(&arg.value)) {
        *real = value.real();
      } else if (auto* truth = std::get_if<bool>(&arg.value)) {
        *truth = value.numerator != 0;
      } else if (!value.is_integer()) {
        return malformed("the number " + text(name) + " is not whole");
      } else if (auto* list = std::get_if<std::vector<int64_t>>(&arg.value)) {
        (*list)[static_cast<size_t>(position)] = value.numerator;
      } else {
        arg.value = value.numerator;
      }
    }
    arg.symbols.clear();
    return base::ok_status();
  }

  Status check_assertion(const RawNode& node) const {
    for (const RawArg& arg : node.args) {
      for (const auto& [position, name] : arg.symbols) {
        DC_ASSIGN_OR_RETURN(const Number value, number(name));
        if (value.numerator == 0) return violated(model_.expressions.at(name));
      }
    }
    return base::ok_status();
  }

  Status check_guards() const {
    for (const std::string& guard : description_.guards) {
      DC_ASSIGN_OR_RETURN(const Number value, evaluate(guard, sizes_));
      if (value.numerator == 0) return violated(guard);
    }
    const SizeOf size_of = [this](std::string_view name, int64_t dim) {
      return size_of_input(name, dim);
    };
    size_t unknown = 0;
    for (const std::string& guard : model_.guards) {
      const std::optional<bool> value = holds(guard, size_of);
      if (value && !*value) return violated(guard);
      unknown += value ? 0 : 1;
    }
    if (unknown > 0) {
      notes_.push_back(std::to_string(unknown) +
                       " conditions on the sizes of inputs could not be checked, such as " +
                       *std::find_if(model_.guards.begin(), model_.guards.end(),
                                     [&](const std::string& g) { return !holds(g, size_of); }));
    }
    return base::ok_status();
  }

  std::optional<int64_t> size_of_input(std::string_view name, int64_t dim) const {
    for (const RawInput& input : model_.inputs) {
      if (input.kind != RawInputKind::User || input.value == 0 || text(input.value) != name)
        continue;
      const ir::Shape& shape = model_.tensors.at(input.value).shape;
      if (dim >= 0 && dim < static_cast<int64_t>(shape.size()))
        return shape[static_cast<size_t>(dim)];
    }
    return std::nullopt;
  }

  Status violated(const std::string& condition) const {
    return contradiction("with " + bound() + " a condition of the archive does not hold: " +
                         condition.substr(0, 200) + "; choose other sizes");
  }

  std::string bound() const {
    std::string list;
    for (const auto& [symbol, size] : sizes_)
      list += (list.empty() ? "" : ", ") + label(symbol) + "=" + std::to_string(size);
    return list;
  }

  RawModel& model_;
  const Description& description_;
  std::vector<std::string>& notes_;
  std::vector<InputDim> inputs_;
  std::set<std::string> wanted_;
  Symbols sizes_;
};

}  // namespace

Status bind_dims(RawModel& model, const Description& description, const std::vector<DimSize>& dims,
                 std::vector<std::string>& notes) {
  return Binder(model, description, notes).run(dims);
}

}  // namespace dc::frontend
