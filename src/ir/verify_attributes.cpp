// Attributes of the project's own ops: those that ops.def names, within their range.
#include <algorithm>

#include "src/ir/verifier.h"

namespace dc::ir {
namespace {

using base::Status;

bool is_of(const OpInfo& op, Attr attribute) {
  return std::ranges::find(op.attributes(), attribute, &AttributeUse::attribute) !=
         op.attributes().end();
}

bool are_axes(const Mesh& mesh, const std::vector<int64_t>* axes) {
  if (axes == nullptr || axes->empty()) return false;
  const auto count = static_cast<int64_t>(mesh.axes.size());
  int64_t before = -1;
  for (const int64_t axis : *axes) {
    if (axis <= before || axis >= count) return false;
    before = axis;
  }
  return true;
}

bool in_range(const Scope& scope, AttrKind kind, const Arg::Value& value) {
  const auto below = [&](int64_t limit) {
    const auto* number = std::get_if<int64_t>(&value);
    return number != nullptr && *number >= 0 && *number < limit;
  };
  switch (kind) {
    case AttrKind::Text:
      return std::holds_alternative<std::string>(value);
    case AttrKind::Entry: {
      const auto* entry = std::get_if<StateId>(&value);
      return entry != nullptr && entry->valid() && entry->index() < scope.step.state.size();
    }
    case AttrKind::Count:
      return below(INT64_MAX);
    case AttrKind::Flag:
      return below(2);
    case AttrKind::Integer:
      return std::holds_alternative<int64_t>(value);
    case AttrKind::Probability: {
      const auto* number = std::get_if<double>(&value);
      return number != nullptr && *number >= 0 && *number <= 1;
    }
    case AttrKind::Parameter:
      return below(scope.trainable);
    case AttrKind::Group:
      return below(static_cast<int64_t>(scope.step.optimizer.groups.size()));
    case AttrKind::Axes:
      return are_axes(scope.step.mesh, std::get_if<std::vector<int64_t>>(&value));
  }
  return false;
}

}  // namespace

Status verify_attributes(const Scope& scope, const Node& node) {
  const auto bad = [&](const std::string& what) { return offence(scope, node, "DC2205", what); };
  const OpInfo& op = info(node.kind);
  for (const AttributeUse& use : op.attributes()) {
    const Arg* arg = node.find(use.attribute);
    if (arg == nullptr && !use.is_needed) continue;
    const std::string which = "attribute '" + std::string(info(use.attribute).text) + "'";
    if (arg == nullptr) return bad(which + " is missing");
    if (!in_range(scope, info(use.attribute).kind, arg->value))
      return bad(which + " is of the wrong type or out of range");
  }
  for (const Arg& arg : node.args) {
    if (arg.attribute != Attr::None && !is_of(op, arg.attribute))
      return bad("this op has no attribute '" + std::string(arg.label()) + "'");
  }
  return {};
}

}  // namespace dc::ir
