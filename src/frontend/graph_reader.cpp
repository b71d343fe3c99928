#include "src/frontend/graph_reader.h"

#include <algorithm>

#include "src/frontend/arguments.h"
#include "src/frontend/item_stream.h"
#include "src/frontend/metadata.h"
#include "src/frontend/signature.h"

namespace dc::frontend {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;

bool is_identifier(std::string_view text) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const auto is_part = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); };
  return !text.empty() && is_letter(text.front()) && std::all_of(text.begin(), text.end(), is_part);
}

enum Item : int { kVersion, kRange, kGuard, kNode, kTensor, kInteger, kInput, kOutput };

class GraphReader : public ItemStream {
 public:
  GraphReader() : metadata_(model_.names) {
    expect("schema_version", kVersion);
    expect("range_constraints/*", kRange);
    expect("guards_code/*", kGuard);
    expect("graph_module/graph/nodes/*", kNode);
    expect("graph_module/graph/tensor_values/*", kTensor);
    expect("graph_module/graph/sym_int_values/*", kInteger);
    expect("graph_module/graph/sym_bool_values/*", kInteger);
    expect("graph_module/graph/sym_float_values/*", kInteger);
    expect("graph_module/signature/input_specs/*", kInput);
    expect("graph_module/signature/output_specs/*", kOutput);
  }

  // The first item that could not be decoded. The schema version may stand behind it, so the
  // stream is read to its end first.
  const Status& status() const { return status_; }
  RawModel take() { return std::move(model_); }
  RawModel& model() { return model_; }

 protected:
  bool item(int id, std::string_view key, TapeValue value) override {
    if (!status_.ok() && id != kVersion) return true;
    Status status = decode(id, key, value);
    if (!status.ok() && status_.ok()) status_ = std::move(status);
    return true;
  }

 private:
  Status decode(int id, std::string_view key, TapeValue value) {
    switch (static_cast<Item>(id)) {
      case kVersion:
        return read_version(value);
      case kRange:
        return read_range(key, value);
      case kGuard:
        if (value.is(TokenKind::String)) model_.guards.emplace_back(value.text());
        return base::ok_status();
      case kNode:
        return read_node(value);
      case kTensor:
        return read_tensor_value(key, value);
      case kInteger:
        return read_integer(key, value);
      case kInput: {
        DC_ASSIGN_OR_RETURN(const RawInput input, read_input_spec(value, model_.names));
        model_.inputs.push_back(input);
        return base::ok_status();
      }
      case kOutput: {
        DC_ASSIGN_OR_RETURN(const RawOutput output, read_output_spec(value, model_.names));
        model_.outputs.push_back(output);
        return base::ok_status();
      }
    }
    return base::ok_status();
  }

  Status read_version(TapeValue value) {
    const TapeValue major = value.find("major");
    const TapeValue minor = value.find("minor");
    if (!major.is(TokenKind::Integer) || !minor.is(TokenKind::Integer)) {
      return malformed("schema_version is no pair of numbers");
    }
    model_.schema_major = major.integer();
    model_.schema_minor = minor.integer();
    return base::ok_status();
  }

  Status read_tensor_value(std::string_view key, TapeValue value) {
    Result<RawTensor> tensor = read_tensor(value);
    if (!tensor.ok()) {
      return Status(tensor.status()).add_context("in the type of " + std::string(key));
    }
    if (!model_.tensors.emplace(model_.names.intern(key), std::move(*tensor)).second) {
      return malformed("the type of " + std::string(key) + " is given twice");
    }
    return base::ok_status();
  }

  Status read_integer(std::string_view key, TapeValue value) {
    const TapeValue number = value.find("as_int");
    if (number.is(TokenKind::Integer)) model_.integers[model_.names.intern(key)] = number.integer();
    const TapeValue expression = value.find("as_expr").find("expr_str");
    if (expression.is(TokenKind::String))
      model_.expressions[model_.names.intern(key)] = expression.text();
    return base::ok_status();
  }

  Status read_range(std::string_view key, TapeValue value) {
    RawRange& range = model_.ranges[std::string(key)];
    const TapeValue low = value.find("min_val"), high = value.find("max_val");
    if (low.is(TokenKind::Integer)) range.low = low.integer();
    if (high.is(TokenKind::Integer)) range.high = high.integer();
    return base::ok_status();
  }

  Status read_node(TapeValue value) {
    RawNode& node = model_.nodes.emplace_back();
    const TapeValue target = value.find("target");
    if (!target.is(TokenKind::String)) return malformed("a node has no target");
    node.target = model_.names.intern(target.text());
    Status status = read_arguments(value.find("inputs"), node);
    if (status.ok()) {
      for (const TapeValue output : children(value.find("outputs"))) {
        status = read_results(output, model_.names, node.results);
        if (!status.ok()) break;
      }
    }
    const TapeValue name = value.find("name");
    if (name.is(TokenKind::String)) node.name = model_.names.intern(name.text());
    if (!status.ok()) {
      return status.add_context("in node " + model_.names.text(node.name) + " (" +
                                std::string(target.text()) + ")");
    }
    metadata_.read(value.find("metadata"), node);
    return base::ok_status();
  }

  Status read_arguments(TapeValue inputs, RawNode& node) {
    if (!inputs.is(TokenKind::Array)) return malformed("a node has no inputs");
    for (const TapeValue input : children(inputs)) {
      RawArg& arg = node.args.emplace_back();
      const TapeValue name = input.find("name");
      if (!name.is(TokenKind::String)) return malformed("an argument has no name");
      arg.name = model_.names.intern(name.text());
      DC_RETURN_IF_ERROR(check_name(node));
      const TapeValue kind = input.find("kind");
      arg.keyword = kind.is(TokenKind::Integer) && kind.integer() == 2;
      DC_RETURN_IF_ERROR(read_argument(input.find("arg"), model_.names, arg));
    }
    return base::ok_status();
  }

  // The last argument's. Other operators than ATen's need not have names for theirs; all of them
  // are refused later.
  Status check_name(const RawNode& node) const {
    if (!model_.names.text(node.target).starts_with("torch.ops.aten.")) return base::ok_status();
    const std::string& name = model_.names.text(node.args.back().name);
    if (!is_identifier(name)) return malformed("an argument has no name");
    const auto is_same = [&](const RawArg& other) { return other.name == node.args.back().name; };
    if (std::none_of(node.args.begin(), node.args.end() - 1, is_same)) return base::ok_status();
    return malformed("argument '" + name + "' is given twice");
  }

  RawModel model_;
  MetadataReader metadata_;
  Status status_;
};

}  // namespace

Result<RawModel> read_graph(std::string_view json, const std::string& what,
                            base::JsonEvents* also) {
  GraphReader reader;
  if (also != nullptr) {
    base::JsonTee both(reader, *also);
    DC_RETURN_IF_ERROR(base::parse_json(json, what, both));
  } else {
    DC_RETURN_IF_ERROR(base::parse_json(json, what, reader));
  }
  const int64_t major = reader.model().schema_major;
  if (major != kSchemaMajor && (major >= 0 || reader.status().ok())) {
    const std::string found =
        major < 0 ? "no schema version" : "schema version " + std::to_string(major);
    return Status(ErrorKind::BadInput, "DC2012",
                  what + " has " + found + "; dcc reads version " + std::to_string(kSchemaMajor) +
                      ": export the model again with torch 2.11");
  }
  if (!reader.status().ok()) return Status(reader.status()).add_context("in " + what);
  return reader.take();
}

}  // namespace dc::frontend
