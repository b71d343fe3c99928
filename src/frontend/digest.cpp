#include "src/frontend/digest.h"

#include <unordered_map>

#include "src/base/json_writer.h"
#include "src/base/sha256.h"
#include "src/ir/enum_words.h"

namespace dc::frontend {
namespace {

// Appends fields separated by spaces; texts are quoted, so that fields cannot run together.
class CanonicalText {
 public:
  CanonicalText& word(std::string_view text) {
    text_ += text;
    text_ += ' ';
    return *this;
  }
  CanonicalText& quoted(std::string_view text) {
    base::append_json_string(text_, text);
    text_ += ' ';
    return *this;
  }
  CanonicalText& number(int64_t value) {
    text_ += std::to_string(value);
    text_ += ' ';
    return *this;
  }
  CanonicalText& real(double value) {
    base::append_json_real(text_, value);
    text_ += ' ';
    return *this;
  }
  CanonicalText& numbers(const std::vector<int64_t>& values) {
    text_ += "[ ";
    for (const int64_t value : values) number(value);
    return word("]");
  }
  CanonicalText& type(const ir::TensorType& type) {
    word(base::name(type.dtype)).numbers(type.shape).numbers(type.strides);
    return number(type.offset);
  }
  void end_line() { text_ += '\n'; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void add_initializer(CanonicalText& out, const ir::Initializer& initializer) {
  out.word(ir::word(initializer.kind)).real(initializer.a).real(initializer.b);
  if (initializer.zero_row >= 0) out.word("zero_row").number(initializer.zero_row);
}

void add_record(CanonicalText& out, const ir::ArchiveRecord& record) {
  out.quoted(record.entry).word(base::name(record.dtype)).numbers(record.shape);
  out.numbers(record.strides).number(record.offset);
}

void add_signature(CanonicalText& out, const ir::Step& step) {
  for (const ir::InputSpec& input : step.inputs) {
    out.word("input")
        .quoted(input.name)
        .word(ir::word(input.role))
        .real(input.low)
        .real(input.high);
    if (input.next) out.word("next");
    if (input.guessed) out.word("guessed");
    if (input.ignored != base::kIgnoredLabel) out.word("ignored").number(input.ignored);
    out.type(input.type).end_line();
  }
  for (const ir::Parameter& parameter : step.parameters) {
    out.word("parameter").quoted(parameter.fqn).number(parameter.trainable);
    for (const std::string& alias : parameter.aliases) out.word("alias").quoted(alias);
    out.word(base::name(parameter.dtype)).numbers(parameter.shape);
    add_initializer(out, parameter.initializer);
    add_record(out, parameter.record);
    out.end_line();
  }
  for (const ir::Buffer& buffer : step.buffers) {
    out.word("buffer").quoted(buffer.fqn).number(buffer.persistent).number(buffer.is_constant);
    out.type(buffer.type).word(base::sha256_hex(buffer.data));
    add_initializer(out, buffer.initializer);
    add_record(out, buffer.record);
    out.end_line();
  }
}

struct ArgText {
  CanonicalText& out;
  const ir::Step& step;
  void operator()(std::monostate) const { out.word("none"); }
  void operator()(const ir::OperandRef& ref) const { out.word("operand").number(ref.index); }
  void operator()(const ir::OperandList& list) const {
    out.word("operands").numbers({list.indices.begin(), list.indices.end()});
  }
  void operator()(bool value) const { out.word(value ? "true" : "false"); }
  void operator()(int64_t value) const { out.word("int").number(value); }
  void operator()(double value) const { out.word("real").real(value); }
  void operator()(const std::string& value) const { out.quoted(value); }
  void operator()(ir::StateId entry) const { out.quoted(step.state[entry.index()].name); }
  void operator()(const std::vector<bool>& values) const {
    out.word("bools").numbers({values.begin(), values.end()});
  }
  void operator()(const std::vector<int64_t>& values) const { out.word("ints").numbers(values); }
  void operator()(const std::vector<double>& values) const {
    out.word("reals").number(static_cast<int64_t>(values.size()));
    for (const double value : values) out.real(value);
  }
  void operator()(base::DType value) const { out.word(base::name(value)); }
  void operator()(ir::DeviceArg) const { out.word("device"); }
  void operator()(ir::LayoutArg value) const { out.word("layout").number(value.value); }
  void operator()(ir::MemoryFormatArg value) const { out.word("format").number(value.value); }
};

void add_graph(CanonicalText& out, const ir::Step& step, const ir::Graph& graph) {
  std::unordered_map<int32_t, int64_t>
      numbers;  // value -> position of its definition; lookups only
  for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    const ir::Node& node = graph.node(id);
    out.word(ir::info(node.kind).text).word(node.overload.name()).quoted(*node.origin.module);
    out.word(ir::word(node.origin.phase)).number(node.origin.accumulates);
    for (const ir::ValueId operand : node.operands) out.number(numbers.at(operand.v));
    for (const ir::Arg& arg : node.args) {
      out.quoted(arg.label());
      std::visit(ArgText{out, step}, arg.value);
    }
    for (const ir::ValueId result : node.results) {
      if (!result.valid()) {
        out.word("-");
        continue;
      }
      numbers.emplace(result.v, static_cast<int64_t>(numbers.size()));
      out.type(graph.value(result).type);
    }
    out.end_line();
  }
  for (const ir::Output& output : graph.outputs) {
    out.word(ir::word(output.kind))
        .quoted(output.fqn)
        .number(numbers.at(output.value.v))
        .end_line();
  }
}

}  // namespace

std::string model_digest(const ir::Step& step) {
  CanonicalText out;
  out.word("dcc-model").number(1).end_line();
  add_signature(out, step);
  for (const ir::Program& program : step.programs) add_graph(out, step, program.graph);
  return base::sha256_hex(out.text());
}

}  // namespace dc::frontend
