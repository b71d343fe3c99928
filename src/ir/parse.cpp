// Reads the textual form of a step; print.cpp writes it.
#include <optional>

#include "src/ir/parse_graph.h"
#include "src/ir/step.h"
#include "src/ir/text_reader.h"

namespace dc::ir {
namespace {

// "arena" is the device's, "host_arena" the host's.
std::optional<Space> space_of_arena(std::string_view key) {
  if (!key.ends_with("arena")) return std::nullopt;
  key.remove_suffix(5);
  if (key.empty()) return Space::Device;
  if (!key.ends_with('_')) return std::nullopt;
  key.remove_suffix(1);
  const std::optional<Space> space = base::enum_value<Space>(base::kSpaceNames, key);
  return space == Space::Device ? std::nullopt : space;
}

class StepParser {
 public:
  explicit StepParser(TextReader& reader) : reader_(reader) {}

  bool parse(Step& step) {
    step_ = &step;
    if (!head()) return false;
    while (!reader_.accept_punct('}')) {
      if (!row()) return false;
    }
    return reader_.peek().kind == TokenKind::End || reader_.expected("the end of the text");
  }

 private:
  bool head() {
    if (!reader_.keyword("step") || !reader_.symbol(step_->name, "the step's name such as @step")) {
      return false;
    }
    while (!reader_.accept_punct('{')) {
      const Token key = reader_.next();
      if (!reader_.punct('=')) return false;
      bool good = false;
      if (key.text == "stage") {
        good = reader_.enumerator(step_->stage, "a stage such as imported");
      } else if (key.text == "mesh") {
        good = mesh();
      } else if (key.text == "accumulation") {
        good = reader_.small_integer(step_->accumulation, "a count of micro-batches", 1);
      } else if (key.text == "reduce_dtype") {
        good = reader_.dtype(step_->reduce_dtype.emplace());
      } else if (const std::optional<Space> space = space_of_arena(key.text)) {
        good = reader_.integer(step_->arena_bytes[*space], "a size in bytes");
      } else if (key.text == "model") {
        good = reader_.string(step_->model_digest, "a digest");
      } else {
        reader_.fail_at(key, "DC2001", "a step has no attribute '" + key.text + "'");
      }
      if (!good) return false;
    }
    return true;
  }

  bool mesh() {
    if (!reader_.punct('<')) return false;
    do {
      MeshAxis axis;
      if (step_->mesh.axes.size() == kMaxAxes) return reader_.fail("DC2003", "too many mesh axes");
      if (!reader_.identifier(axis.name, "a mesh axis") || !reader_.punct('=') ||
          !reader_.small_integer(axis.size, "the size of a mesh axis", 1)) {
        return false;
      }
      step_->mesh.axes.push_back(std::move(axis));
    } while (reader_.accept_punct(','));
    return reader_.punct('>');
  }

  bool row() {
    const Token word = reader_.peek();
    if (word.kind != TokenKind::Identifier)
      return reader_.expected("a table row, a program or '}'");
    reader_.next();
    if (word.text == "input") return input();
    if (word.text == "parameter") return parameter();
    if (word.text == "buffer") return buffer();
    if (word.text == "optimizer") return optimizer();
    if (word.text == "state") return state();
    if (word.text == "streams") return streams();
    if (word.text == "program") return parse_program(reader_, *step_);
    return reader_.fail_at(word, "DC2001", "a step has no table '" + word.text + "'");
  }

  bool name_and_type(std::string& name, TensorType& type, std::string_view what) {
    return reader_.string(name, what) && reader_.punct(':') && reader_.type(type, step_->mesh);
  }

  bool more() const { return reader_.same_line() && reader_.peek().kind == TokenKind::Identifier; }

  bool unknown(const Token& key, std::string_view row) {
    return reader_.fail_at(key, "DC2001",
                           std::string(row) + " has no attribute '" + key.text + "'");
  }

  bool input() {
    InputSpec input;
    if (!name_and_type(input.name, input.type, "the input's name")) return false;
    while (more()) {
      const Token key = reader_.next();
      if (key.text == "role") {
        if (!reader_.punct('=') || !reader_.enumerator(input.role, "a role such as tokens"))
          return false;
      } else if (key.text == "range") {
        if (!reader_.punct('=') || !pair(input.low, input.high)) return false;
      } else if (key.text == "next") {
        input.next = true;
      } else if (key.text == "guessed") {
        input.guessed = true;
      } else if (key.text == "ignored") {
        if (!reader_.punct('=') || !reader_.integer(input.ignored, "a label")) return false;
      } else {
        return unknown(key, "an input");
      }
    }
    step_->inputs.push_back(std::move(input));
    return true;
  }

  bool pair(double& a, double& b) {
    return reader_.punct('(') && reader_.number(a, "a number") && reader_.punct(',') &&
           reader_.number(b, "a number") && reader_.punct(')');
  }

  bool initializer(Initializer& out) {
    if (!reader_.punct('=') || !reader_.enumerator(out.kind, "an initializer such as normal"))
      return false;
    return !reader_.at_punct('(') || pair(out.a, out.b);
  }

  bool zero_row(Initializer& out) {
    return reader_.punct('=') && reader_.integer(out.zero_row, "a row");
  }

  // archive="entry" implies the row's own type; archive_type(...) says another.
  bool archive(ArchiveRecord& out, DType dtype, const Shape& shape) {
    if (!reader_.punct('=') || !reader_.string(out.entry, "an entry of the archive")) return false;
    out.dtype = dtype;
    out.shape = shape;
    out.strides = contiguous_strides(shape);
    return true;
  }

  bool archive_type(ArchiveRecord& out) {
    TensorType type;
    if (!reader_.punct('(') || !reader_.type(type, Mesh{}) || !reader_.punct(')')) return false;
    out.dtype = type.dtype;
    out.shape = std::move(type.shape);
    out.strides = std::move(type.strides);
    out.offset = type.offset;
    return true;
  }

  bool parameter() {
    Parameter parameter;
    TensorType type;
    if (!name_and_type(parameter.fqn, type, "the parameter's name")) return false;
    parameter.dtype = type.dtype;
    parameter.shape = std::move(type.shape);
    while (more()) {
      if (!parameter_attribute(parameter)) return false;
    }
    step_->parameters.edit().push_back(std::move(parameter));
    return true;
  }

  bool parameter_attribute(Parameter& parameter) {
    const Token key = reader_.next();
    if (key.text == "frozen") {
      parameter.trainable = false;
      return true;
    }
    if (key.text == "init") return initializer(parameter.initializer);
    if (key.text == "zero_row") return zero_row(parameter.initializer);
    if (key.text == "archive") return archive(parameter.record, parameter.dtype, parameter.shape);
    if (key.text == "archive_type") return archive_type(parameter.record);
    if (!reader_.punct('=')) return false;
    if (key.text == "placement") return reader_.enumerator(parameter.placement, "a placement");
    if (key.text == "gradient") return reader_.enumerator(parameter.gradient, "a placement");
    if (key.text == "state") return reader_.enumerator(parameter.state, "a placement");
    if (key.text == "group") return reader_.small_integer(parameter.group, "a group", 0);
    if (key.text == "shard") return reader_.integer(parameter.shard, "elements of a shard");
    if (key.text == "alias") return reader_.string(parameter.aliases.emplace_back(), "a name");
    return unknown(key, "a parameter");
  }

  bool buffer() {
    Buffer buffer;
    if (!name_and_type(buffer.fqn, buffer.type, "the buffer's name")) return false;
    while (more()) {
      const Token key = reader_.next();
      bool good = true;
      if (key.text == "transient") {
        buffer.persistent = false;
      } else if (key.text == "constant") {
        buffer.is_constant = true;
      } else if (key.text == "init") {
        good = initializer(buffer.initializer);
      } else if (key.text == "zero_row") {
        good = zero_row(buffer.initializer);
      } else if (key.text == "archive") {
        good = archive(buffer.record, buffer.type.dtype, buffer.type.shape);
      } else if (key.text == "archive_type") {
        good = archive_type(buffer.record);
      } else if (key.text == "data") {
        good = reader_.punct('=') && bytes(buffer.data);
      } else {
        good = unknown(key, "a buffer");
      }
      if (!good) return false;
    }
    step_->buffers.push_back(std::move(buffer));
    return true;
  }

  bool bytes(std::vector<uint8_t>& out) {
    const Token token = reader_.peek();
    std::string text;
    if (!reader_.string(text, "bytes in hexadecimal")) return false;
    const auto digit = [](char c) {
      return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    };
    if (text.size() % 2 != 0) return reader_.fail_at(token, "DC2003", "half a byte");
    for (size_t i = 0; i < text.size(); i += 2) {
      const int high = digit(text[i]), low = digit(text[i + 1]);
      if (high < 0 || low < 0) return reader_.fail_at(token, "DC2003", "not hexadecimal");
      out.push_back(static_cast<uint8_t>(high * 16 + low));
    }
    return true;
  }

  bool optimizer() {
    Optimizer& optimizer = step_->optimizer;
    if (!reader_.enumerator(optimizer.kind, "an optimizer such as adamw")) return false;
    while (more()) {
      const Token key = reader_.next();
      if (key.text == "clip") {
        optimizer.clip = true;
      } else if (!reader_.punct('=') || !optimizer_value(key, optimizer)) {
        return false;
      }
    }
    if (!reader_.accept_punct('{')) return true;
    optimizer.groups.clear();
    while (!reader_.accept_punct('}')) {
      if (!reader_.keyword("group") || !group(optimizer.groups.emplace_back())) return false;
    }
    return true;
  }

  bool optimizer_value(const Token& key, Optimizer& optimizer) {
    if (key.text == "clip_norm") return reader_.number(optimizer.clip_norm, "a norm");
    if (key.text == "seed") return reader_.unsigned_integer(optimizer.seed, "a seed");
    if (key.text == "schedule") return reader_.enumerator(optimizer.schedule, "a schedule");
    if (key.text == "warmup") return reader_.integer(optimizer.warmup_steps, "steps");
    if (key.text == "total") return reader_.integer(optimizer.total_steps, "steps");
    if (key.text == "final_lr") return reader_.number(optimizer.final_lr_fraction, "a fraction");
    return unknown(key, "an optimizer");
  }

  bool group(OptimizerGroup& group) {
    if (!reader_.string(group.match, "a pattern")) return false;
    while (more()) {
      const Token key = reader_.next();
      if (key.text == "nesterov") {
        group.nesterov = true;
        continue;
      }
      double* target = group_value(key.text, group);
      if (!target) return unknown(key, "a group");
      if (!reader_.punct('=') || !reader_.number(*target, "a number")) return false;
    }
    return true;
  }

  static double* group_value(std::string_view key, OptimizerGroup& group) {
    if (key == "lr") return &group.lr;
    if (key == "weight_decay") return &group.weight_decay;
    if (key == "beta1") return &group.beta1;
    if (key == "beta2") return &group.beta2;
    if (key == "eps") return &group.eps;
    if (key == "momentum") return &group.momentum;
    if (key == "dampening") return &group.dampening;
    return nullptr;
  }

  // "name" or #index into a table.
  template <typename Table, typename Name>
  bool reference(int& out, const Table& table, Name name, std::string_view what) {
    if (!reader_.punct('=')) return false;
    if (reader_.accept_punct('#')) return reader_.small_integer(out, "an index", -1);
    const Token token = reader_.peek();
    std::string wanted;
    if (!reader_.string(wanted, what)) return false;
    for (size_t i = 0; i < table.size(); ++i) {
      if (name(table[i]) != wanted) continue;
      out = static_cast<int>(i);
      return true;
    }
    return reader_.fail_at(token, "DC2002",
                           "no row above is " + std::string(what) + " '" + wanted + "'");
  }

  bool state() {
    StateEntry entry;
    if (!name_and_type(entry.name, entry.type, "the entry's name")) return false;
    entry.storage_elements = entry.type.numel();
    while (more()) {
      if (!state_attribute(entry)) return false;
    }
    step_->state.push_back(std::move(entry));
    return true;
  }

  bool state_attribute(StateEntry& entry) {
    const Token key = reader_.next();
    if (key.text == "at") return reader_.location(entry.location);
    const auto fqn = [](const auto& row) -> const std::string& { return row.fqn; };
    const auto name = [](const auto& row) -> const std::string& { return row.name; };
    if (key.text == "parameter")
      return reference(entry.parameter, step_->parameters, fqn, "parameter");
    if (key.text == "buffer") return reference(entry.buffer, step_->buffers, fqn, "buffer");
    if (key.text == "range_of") return reference(entry.range_of, step_->state, name, "state entry");
    if (!reader_.punct('=')) return false;
    if (key.text == "role") return reader_.enumerator(entry.role, "a role such as shard");
    if (key.text == "storage")
      return reader_.integer(entry.storage_elements, "elements of storage");
    return unknown(key, "a state entry");
  }

  bool streams() {
    step_->streams.clear();
    while (reader_.peek().kind == TokenKind::String) step_->streams.push_back(reader_.next().text);
    return true;
  }

  TextReader& reader_;
  Step* step_ = nullptr;
};

}  // namespace

base::Result<Step> parse(std::string_view text) {
  TextReader reader(text);
  Step step;
  if (reader.failed() || !StepParser(reader).parse(step)) return reader.take_error();
  return step;
}

}  // namespace dc::ir
