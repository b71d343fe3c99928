#include "src/frontend/metadata.h"

#include "src/base/json.h"

namespace dc::frontend {
namespace {

// "key,path,type" entries joined by ';', outermost first; the path of the last one.
std::string_view last_path(std::string_view stack) {
  const size_t start = stack.rfind(';');
  if (start != std::string_view::npos) stack.remove_prefix(start + 1);
  const size_t first = stack.find(',');
  if (first == std::string_view::npos) return {};
  stack.remove_prefix(first + 1);
  return stack.substr(0, stack.find(','));
}

}  // namespace

const MetadataReader::Marks& MetadataReader::marks_of(std::string_view custom) {
  key_ = custom;
  const auto found = marks_.find(key_);
  if (found != marks_.end()) return found->second;
  Marks marks;
  // Text that is not ours (another tool's annotation) says nothing and is no error.
  const base::Result<base::JsonValue> value = base::parse_json_value(custom, "custom");
  if (value.ok()) {
    if (const base::JsonValue* phase = value->find("ph"); phase != nullptr && phase->is_string()) {
      marks.has_phase = true;
      marks.backward = *phase->to_string() == "b";
    }
    if (const base::JsonValue* module = value->find("m");
        module != nullptr && module->is_string()) {
      marks.has_module = true;
      marks.module = names_.intern(*module->to_string());
    }
    marks.accumulates = value->find("acc") != nullptr;
  }
  return marks_.emplace(key_, marks).first->second;
}

Name MetadataReader::module_of(std::string_view stack) {
  key_ = stack;
  const auto found = modules_.find(key_);
  if (found != modules_.end()) return found->second;
  return modules_.emplace(key_, names_.intern(last_path(stack))).first->second;
}

void MetadataReader::read(TapeValue metadata, RawNode& node) {
  const TapeValue custom = metadata.find("custom");
  bool has_module = false;
  if (custom.is(TokenKind::String)) {
    const Marks& marks = marks_of(custom.text());
    node.marked = marks.has_phase;
    node.phase = marks.backward ? ir::Phase::Backward : ir::Phase::Forward;
    node.accumulates = marks.accumulates;
    node.module = marks.module;
    has_module = marks.has_module;
  }
  if (has_module) return;
  const TapeValue stack = metadata.find("nn_module_stack");
  if (stack.is(TokenKind::String)) node.module = module_of(stack.text());
}

}  // namespace dc::frontend
