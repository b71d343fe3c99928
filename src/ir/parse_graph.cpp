#include "src/ir/parse_graph.h"

#include <unordered_map>

#include "src/ir/text_format.h"

namespace dc::ir {
namespace {

class GraphParser {
 public:
  GraphParser(TextReader& reader, const Step& step, Graph& graph)
      : reader_(reader), step_(step), graph_(graph) {}

  bool body() {
    while (!reader_.accept_punct('}')) {
      if (reader_.at_word("output") ? !output() : !node()) return false;
    }
    return true;
  }

 private:
  struct Result {
    std::string name;  // empty: None
    Token where;
    TensorType type;
    Location location;
  };

  bool output() {
    reader_.next();
    Output output;
    if (!reader_.enumerator(output.kind, "loss, gradient or buffer")) return false;
    if (reader_.peek().kind == TokenKind::String) output.fqn = reader_.next().text;
    if (!reader_.accept_punct('-') && !operand(output.value)) return false;
    graph_.outputs.push_back(std::move(output));
    return true;
  }

  bool operand(ValueId& out) {
    const Token token = reader_.peek();
    if (token.kind != TokenKind::Value) return reader_.expected("a value such as %x");
    const auto found = values_.find(token.text);
    if (found == values_.end()) {
      return reader_.fail("DC2002",
                          "the value %" + token.text + " is not defined before this line");
    }
    out = found->second;
    reader_.next();
    return true;
  }

  bool node() {
    std::vector<Result> results;
    if (!result_names(results)) return false;
    const Token op = reader_.peek();
    if (op.kind != TokenKind::Identifier) return reader_.expected("an op");
    reader_.next();
    operands_.clear();
    args_.clear();
    const auto kind = op.text.starts_with("aten.") ? OpKind::Aten : op_from_text(op.text);
    if (!kind) return reader_.fail_at(op, "DC2002", "there is no op '" + op.text + "'");
    if (!operand_list() || !arg_list(*kind) || !result_types(results)) return false;
    return insert(*kind, op.text, results) && suffixes();
  }

  bool insert(OpKind kind, const std::string& overload, std::vector<Result>& results) {
    std::vector<NewValue> fresh;
    for (Result& result : results) {
      const bool none = result.name.empty();
      fresh.push_back(NewValue{none ? "-" : result.name, none ? TensorType{} : result.type});
    }
    node_ = &graph_.insert(NodeId{}, kind, operands_, std::move(fresh), args_, Origin{});
    if (kind == OpKind::Aten) node_->overload = overload;
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i].name.empty()) continue;
      const ValueId id = node_->results[i];
      if (!values_.emplace(results[i].name, id).second) {
        return reader_.fail_at(results[i].where, "DC2002",
                               "the value %" + results[i].name + " is defined twice");
      }
      graph_.edit_location(id) = results[i].location;
    }
    return true;
  }

  bool result_names(std::vector<Result>& results) {
    if (reader_.peek().kind == TokenKind::Identifier) return true;
    do {
      Result result;
      result.where = reader_.peek();
      if (!reader_.accept_punct('-')) {
        if (reader_.peek().kind != TokenKind::Value) return reader_.expected("an op or a value");
        result.name = reader_.next().text;
        if (result.name.empty() || result.name == "-") {
          return reader_.fail_at(result.where, "DC2002", "this cannot be the name of a value");
        }
      }
      results.push_back(std::move(result));
    } while (reader_.accept_punct(','));
    return reader_.punct('=');
  }

  bool operand_list() {
    listed_ = reader_.same_line() && reader_.peek().kind == TokenKind::Value;
    if (!listed_) return true;
    do {
      if (!operand(operands_.emplace_back())) return false;
    } while (reader_.accept_punct(','));
    return true;
  }

  bool arg_list(OpKind kind) {
    if (!reader_.same_line() || !reader_.accept_punct('(')) return true;
    bool keyword = false;
    while (!reader_.accept_punct(')')) {
      if (reader_.accept_punct(';')) {
        keyword = !keyword;
      } else if (!args_.empty() && !reader_.punct(',')) {
        return false;
      }
      Arg arg;
      arg.keyword = keyword;
      if (!reader_.identifier(arg.name, "the name of an argument") || !reader_.punct('=') ||
          !arg_value(arg.value)) {
        return false;
      }
      if (kind != OpKind::Aten && !attribute(kind, arg)) return false;
      args_.push_back(std::move(arg));
    }
    return true;
  }

  // Of an op of our own: an argument that names no operand.
  bool attribute(OpKind kind, Arg& arg) {
    if (std::holds_alternative<OperandRef>(arg.value)) return true;
    const auto known = attribute_of(kind, arg.name);
    if (!known) {
      return reader_.fail("DC2002",
                          std::string(info(kind).text) + " has no attribute '" + arg.name + "'");
    }
    arg.attribute = *known;
    arg.name.clear();
    const auto* entry = std::get_if<std::string>(&arg.value);
    if (*known != Attr::Entry || entry == nullptr) return true;
    const int index = step_.state.find(*entry);
    if (index < 0) return reader_.fail("DC2002", "there is no state entry '" + *entry + "'");
    arg.value = StateId{index};
    return true;
  }

  // %x adds an operand where none are listed; #1 means the second listed one.
  bool operand_ref(int& index) {
    const Token token = reader_.peek();
    if (listed_) {
      if (!reader_.punct('#') || !reader_.small_integer(index, "the index of an operand", 0)) {
        return false;
      }
      if (static_cast<size_t>(index) < operands_.size()) return true;
      return reader_.fail_at(token, "DC2003", "there is no operand #" + std::to_string(index));
    }
    index = static_cast<int>(operands_.size());
    ValueId id;
    if (!operand(id)) return false;
    operands_.push_back(id);
    return true;
  }

  bool at_operand() const {
    return reader_.peek().kind == TokenKind::Value || reader_.at_punct('#');
  }

  bool arg_value(Arg::Value& out) {
    const Token token = reader_.peek();
    if (at_operand()) return operand_ref(out.emplace<OperandRef>().index);
    if (reader_.at_punct('[')) return list(out);
    switch (token.kind) {
      case TokenKind::Integer:
        return reader_.integer(out.emplace<int64_t>(), "an integer");
      case TokenKind::Float:
        return reader_.number(out.emplace<double>(), "a number");
      case TokenKind::String:
        return reader_.string(out.emplace<std::string>(), "a string");
      case TokenKind::Identifier:
        return word_value(token.text, out);
      case TokenKind::Value:
      case TokenKind::Symbol:
      case TokenKind::Punct:
      case TokenKind::End:
        break;
    }
    return reader_.expected("the value of an argument");
  }

  bool word_value(const std::string& word, Arg::Value& out) {
    if (word == "inf" || word == "nan") return reader_.number(out.emplace<double>(), "a number");
    if (const auto dtype = base::dtype_from_name(word)) {
      out = *dtype;
    } else if (word == "none") {
      out = std::monostate{};
    } else if (word == "true" || word == "false") {
      out = word == "true";
    } else if (word == "device") {
      out = DeviceArg{};
    } else if (word == "tensors") {
      out = OperandList{};
    } else if (word == "bools") {
      out = std::vector<bool>{};
    } else if (word == "floats") {
      out = std::vector<double>{};
    } else if (word == "layout") {
      reader_.next();
      return in_parentheses(out.emplace<LayoutArg>().value);
    } else if (word == "memory_format") {
      reader_.next();
      return in_parentheses(out.emplace<MemoryFormatArg>().value);
    } else {
      return reader_.expected("the value of an argument");
    }
    reader_.next();
    const bool empty_list = word == "tensors" || word == "bools" || word == "floats";
    return !empty_list || (reader_.punct('[') && reader_.punct(']'));
  }

  bool in_parentheses(int64_t& out) {
    return reader_.punct('(') && reader_.integer(out, "an integer") && reader_.punct(')');
  }

  // The first item decides what the list holds.
  bool list(Arg::Value& out) {
    reader_.next();
    if (reader_.accept_punct(']')) {
      out = std::vector<int64_t>{};
      return true;
    }
    const Token first = reader_.peek();
    if (at_operand() || reader_.at_word("none")) {
      auto& indices = out.emplace<OperandList>().indices;
      return items([&] {
        return reader_.accept_word("none") ? (indices.push_back(-1), true)
                                           : operand_ref(indices.emplace_back());
      });
    }
    if (reader_.at_word("true") || reader_.at_word("false")) {
      auto& flags = out.emplace<std::vector<bool>>();
      return items([&] {
        flags.push_back(reader_.at_word("true"));
        return reader_.accept_word("true") || reader_.keyword("false");
      });
    }
    if (first.kind == TokenKind::Integer) {
      auto& numbers = out.emplace<std::vector<int64_t>>();
      return items([&] { return reader_.integer(numbers.emplace_back(), "an integer"); });
    }
    auto& numbers = out.emplace<std::vector<double>>();
    return items([&] { return reader_.number(numbers.emplace_back(), "a list item"); });
  }

  template <typename Item>
  bool items(Item item) {
    do {
      if (!item()) return false;
    } while (reader_.accept_punct(','));
    return reader_.punct(']');
  }

  bool result_types(std::vector<Result>& results) {
    if (results.empty()) return true;
    if (!reader_.punct(':')) return false;
    for (size_t i = 0; i < results.size(); ++i) {
      if (i > 0 && !reader_.punct(',')) return false;
      if (results[i].name.empty()) {
        if (!reader_.punct('-')) return false;
        continue;
      }
      if (!reader_.type(results[i].type, step_.mesh)) return false;
      if (reader_.same_line() && reader_.accept_word("at") &&
          !reader_.location(results[i].location)) {
        return false;
      }
    }
    return true;
  }

  bool suffixes() {
    while (reader_.same_line() && reader_.peek().kind == TokenKind::Identifier) {
      const Token token = reader_.next();
      if (const auto phase = from_word<Phase>(token.text)) {
        node_->origin.phase = *phase;
      } else if (token.text == "accumulates") {
        node_->origin.accumulates = true;
      } else if (token.text == "in") {
        std::string module;
        if (!reader_.string(module, "a module")) return false;
        node_->origin.module = std::move(module);
      } else if (token.text == "stream") {
        if (!reader_.punct('=') || !stream()) return false;
      } else if (token.text == "provider" && node_->kind == OpKind::Aten) {
        if (!reader_.punct('=') || !provider()) return false;
      } else if (token.text == "scratch") {
        if (!reader_.punct('=') || !reader_.location(node_->scratch)) return false;
      } else {
        return reader_.fail_at(token, "DC2001", "'" + token.text + "' means nothing after a node");
      }
    }
    return reader_.same_line() && !reader_.at_punct('}') ? reader_.expected("the end of the line")
                                                         : true;
  }

  bool provider() {
    const Token token = reader_.peek();
    std::string name;
    if (!reader_.identifier(name, "a provider")) return false;
    const auto known = base::provider_from_name(name);
    if (!known) return reader_.fail_at(token, "DC2002", "there is no provider '" + name + "'");
    node_->provider = *known;
    return true;
  }

  bool stream() {
    if (reader_.accept_punct('#')) return reader_.small_integer(node_->stream, "a stream", 0);
    const Token token = reader_.peek();
    std::string name;
    if (!reader_.identifier(name, "a stream")) return false;
    for (size_t i = 0; i < step_.streams.size(); ++i) {
      if (step_.streams[i] != name) continue;
      node_->stream = static_cast<int>(i);
      return true;
    }
    return reader_.fail_at(token, "DC2002", "there is no stream '" + name + "'");
  }

  TextReader& reader_;
  const Step& step_;
  Graph& graph_;
  std::unordered_map<std::string, ValueId> values_;
  bool listed_ = false;
  std::vector<ValueId> operands_;
  std::vector<Arg> args_;
  Node* node_ = nullptr;
};

}  // namespace

bool parse_program(TextReader& reader, Step& step) {
  std::string name;
  int repeat = 1;
  if (!reader.symbol(name, "the program's name such as @step")) return false;
  if (reader.accept_word("repeat")) {
    if (!reader.punct('=') || !reader.small_integer(repeat, "a repeat count", 0)) return false;
  }
  if (!reader.punct('{')) return false;
  Program program{Graph(std::move(name)), repeat};
  if (!GraphParser(reader, step, program.graph).body()) return false;
  step.programs.push_back(std::move(program));
  return true;
}

}  // namespace dc::ir
