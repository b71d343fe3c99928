#include "src/ir/print_graph.h"

#include "src/ir/enum_words.h"
#include "src/ir/text_format.h"

namespace dc::ir {
namespace {

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

// One node as a line of text.
class NodePrinter {
 public:
  NodePrinter(const Graph& graph, const Step& step, const Node& node)
      : graph_(graph), step_(step), node_(node), inline_(operands_follow_args()) {}

  std::string line() const {
    std::string out = results();
    out += node_.kind == OpKind::Aten ? node_.overload.text() : std::string(info(node_.kind).text);
    if (!inline_) {
      for (size_t i = 0; i < node_.operands.size(); ++i) {
        out += (i > 0 ? ", " : " ") + value_name(node_.operands[i]);
      }
    }
    if (!node_.args.empty()) out += (inline_ ? "" : " ") + args();
    return out + types() + suffixes();
  }

 private:
  // True if the arguments name the operands 0, 1, 2, ... in order, so that a list of operands would
  // say nothing new.
  bool operands_follow_args() const {
    int expected = 0;
    for (const Arg& arg : node_.args) {
      if (const auto* ref = std::get_if<OperandRef>(&arg.value)) {
        if (ref->index != expected++) return false;
      } else if (const auto* list = std::get_if<OperandList>(&arg.value)) {
        for (int index : list->indices) {
          if (index != -1 && index != expected++) return false;
        }
      }
    }
    return expected == static_cast<int>(node_.operands.size());
  }

  std::string value_name(ValueId id) const { return named('%', *graph_.value(id).name); }

  std::string results() const {
    std::string out;
    for (size_t i = 0; i < node_.results.size(); ++i) {
      if (i > 0) out += ", ";
      out += node_.results[i].valid() ? value_name(node_.results[i]) : "-";
    }
    return out.empty() ? out : out + " = ";
  }

  std::string operand(int index) const {
    if (inline_) return value_name(node_.operands[static_cast<size_t>(index)]);
    return "#" + std::to_string(index);
  }

  template <typename Item, typename Format>
  static std::string list(const std::vector<Item>& items, std::string_view empty, Format format) {
    if (items.empty()) return std::string(empty) + "[]";
    std::string out = "[";
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += ", ";
      out += format(items[i]);
    }
    return out + "]";
  }

  std::string arg_value(const Arg::Value& value) const {
    const auto truth = [](bool flag) { return std::string(flag ? "true" : "false"); };
    return std::visit(
        Overloaded{
            [](std::monostate) { return std::string("none"); },
            [&](const OperandRef& ref) { return operand(ref.index); },
            [&](const OperandList& operands) {
              return list(operands.indices, "tensors", [&](int index) {
                return index == -1 ? std::string("none") : operand(index);
              });
            },
            [&](bool flag) { return truth(flag); },
            [](int64_t number) { return std::to_string(number); },
            [](double number) { return format_double(number); },
            [](const std::string& text) { return quoted(text); },
            [&](StateId entry) { return quoted(step_.state[entry.index()].name); },
            [&](const std::vector<bool>& flags) { return list(flags, "bools", truth); },
            [](const std::vector<int64_t>& numbers) { return format_ints(numbers, '[', ']'); },
            [](const std::vector<double>& numbers) {
              return list(numbers, "floats", format_double);
            },
            [](DType dtype) { return std::string(base::name(dtype)); },
            [](DeviceArg) { return std::string("device"); },
            [](LayoutArg layout) { return "layout(" + std::to_string(layout.value) + ")"; },
            [](MemoryFormatArg format) {
              return "memory_format(" + std::to_string(format.value) + ")";
            },
        },
        value);
  }

  // A semicolon separates positional from keyword arguments.
  std::string args() const {
    std::string out = "(";
    bool keyword = false;
    for (size_t i = 0; i < node_.args.size(); ++i) {
      const Arg& arg = node_.args[i];
      if (arg.keyword != keyword) {
        out += i > 0 ? "; " : ";";
      } else if (i > 0) {
        out += ", ";
      }
      keyword = arg.keyword;
      out += identifier(std::string(arg.label())) + "=" + arg_value(arg.value);
    }
    return out + ")";
  }

  std::string types() const {
    std::string out;
    for (size_t i = 0; i < node_.results.size(); ++i) {
      out += i > 0 ? ", " : " : ";
      if (!node_.results[i].valid()) {
        out += "-";
        continue;
      }
      const Value& value = graph_.value(node_.results[i]);
      out += format_type(value.type, step_.mesh);
      const Location& location = graph_.storage(value.id).location;
      if (!is_default(location)) out += " at " + format_location(location);
    }
    return out;
  }

  std::string suffixes() const {
    std::string out;
    const Origin& origin = node_.origin;
    if (origin.phase != Phase::Forward) out += " " + std::string(word(origin.phase));
    if (origin.accumulates) out += " accumulates";
    if (!origin.module.empty()) out += " in " + quoted(*origin.module);
    if (node_.stream != 0) {
      const auto index = static_cast<size_t>(node_.stream);
      const bool known =
          node_.stream > 0 && index < step_.streams.size() && is_identifier(step_.streams[index]);
      out += " stream=" + (known ? step_.streams[index] : "#" + std::to_string(node_.stream));
    }
    if (node_.provider != base::Provider::Aten)
      out += " provider=" + std::string(base::name(node_.provider));
    if (!is_default(node_.scratch)) out += " scratch=" + format_location(node_.scratch);
    return out;
  }

  const Graph& graph_;
  const Step& step_;
  const Node& node_;
  bool inline_;
};

}  // namespace

void print_program(const Program& program, const Step& step, std::string& out) {
  const Graph& graph = program.graph;
  out += "  program " + named('@', graph.name());
  if (program.repeat != 1) out += " repeat=" + std::to_string(program.repeat);
  out += " {\n";
  for (NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    out += "    " + NodePrinter(graph, step, graph.node(id)).line() + "\n";
  }
  for (const Output& output : graph.outputs) {
    out += "    output " + std::string(word(output.kind));
    if (output.kind != OutputKind::Loss || !output.fqn.empty()) out += " " + quoted(output.fqn);
    out += " " + (output.value.valid() ? named('%', *graph.value(output.value).name) : "-") + "\n";
  }
  out += "  }\n";
}

}  // namespace dc::ir
