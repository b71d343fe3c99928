// Operators: arguments, results and their types.
#include <algorithm>

#include "src/frontend/arguments.h"
#include "src/frontend/checks.h"
#include "src/frontend/draft.h"
#include "src/frontend/kernel_types.h"

namespace dc::frontend {
namespace {

using base::Result;
using base::Status;

class NodeBuilder {
 public:
  explicit NodeBuilder(Draft& draft) : draft_(draft) {}

  Status run() {
    for (RawNode& node : draft_.model.nodes) {
      Status status = add_node(node);
      if (!status.ok()) {
        return status.add_context("in node " + draft_.text(node.name) + " (" +
                                  draft_.text(node.target) + ")");
      }
    }
    return base::ok_status();
  }

 private:
  Result<int> operand(Name name, bool kernel_types, std::vector<ir::ValueId>& operands) {
    if (name < 0) return -1;
    const ir::ValueId value = kernel_types ? draft_.value_of(name) : draft_.as_declared(name);
    if (!value.valid()) return malformed(draft_.text(name) + " is used before it is defined");
    operands.push_back(value);
    return static_cast<int>(operands.size()) - 1;
  }

  // Names become positions among the node's operands.
  Result<ir::Arg> convert(RawArg& raw, bool kernel_types, std::vector<ir::ValueId>& operands) {
    if (auto* single = std::get_if<ir::OperandRef>(&raw.value)) {
      DC_ASSIGN_OR_RETURN(single->index, operand(single->index, kernel_types, operands));
    } else if (auto* list = std::get_if<ir::OperandList>(&raw.value)) {
      for (int& index : list->indices) {
        DC_ASSIGN_OR_RETURN(index, operand(index, kernel_types, operands));
      }
    }
    return ir::Arg{draft_.text(raw.name), std::move(raw.value), raw.keyword};
  }

  // A kernel makes only the results its output_mask asks for; some shape functions of PyTorch, and
  // so an archive, list all of them.
  static void drop_masked(const std::vector<ir::Arg>& args, std::vector<Name>& results) {
    for (const ir::Arg& arg : args) {
      const auto* mask = std::get_if<std::vector<bool>>(&arg.value);
      if (arg.name != "output_mask" || mask == nullptr) continue;
      for (size_t i = 0; i < std::min(mask->size(), results.size()); ++i) {
        if (!(*mask)[i]) results[i] = -1;
      }
    }
  }

  Status add_node(RawNode& raw) {
    const std::string_view overload = overload_of(draft_.text(raw.target));
    if (overload == kGetItem) return take_item(raw);
    std::vector<ir::ValueId> operands;
    std::vector<ir::Arg> args;
    args.reserve(raw.args.size());
    for (RawArg& arg : raw.args) {
      DC_ASSIGN_OR_RETURN(ir::Arg converted, convert(arg, takes_kernel_types(overload), operands));
      args.push_back(std::move(converted));
    }
    const bool view = ir::aten_info(overload)->alias == ir::AliasRule::View && !operands.empty();
    const int64_t shift = view ? draft_.base_offset(operands[0]) : 0;
    std::vector<ir::NewValue> results;
    const OperandType operand_type = [&](std::string_view name) -> std::optional<base::DType> {
      for (const ir::Arg& arg : args) {
        const auto* single = std::get_if<ir::OperandRef>(&arg.value);
        if (single == nullptr || arg.name != name) continue;
        return draft_.graph.value(operands[static_cast<size_t>(single->index)]).type.dtype;
      }
      return std::nullopt;
    };
    drop_masked(args, raw.results);
    for (const Name name : raw.results) {
      if (name < 0) {
        results.push_back({"-", {}});
        continue;
      }
      DC_ASSIGN_OR_RETURN(ir::TensorType type, draft_.type_of(name));
      const auto given = kernel_dtype(overload, results.size(), operand_type);
      if (given && *given != type.dtype) {
        draft_.declare(name, type.dtype);
        type.dtype = *given;
      }
      type.offset -= shift;
      if (type.offset < 0) return malformed(draft_.text(name) + " starts before its storage");
      results.push_back({draft_.text(name), std::move(type)});
    }
    ir::Node& node = draft_.graph.insert_aten(
        {}, std::string(overload), std::move(operands), std::move(results), std::move(args),
        {draft_.text(raw.module), raw.phase, raw.accumulates});
    for (size_t i = 0; i < raw.results.size(); ++i) {
      if (raw.results[i] < 0) continue;
      DC_RETURN_IF_ERROR(draft_.define(raw.results[i], node.results[i], shift));
    }
    if (!raw.marked) draft_.unmarked.push_back(node.id);
    return base::ok_status();
  }

  // Exporters fold getitem into its producer; one that is left picks from a list of tensors.
  Status take_item(const RawNode& raw) {
    const auto* list =
        raw.args.size() == 2 ? std::get_if<ir::OperandList>(&raw.args[0].value) : nullptr;
    const auto* index = list == nullptr ? nullptr : std::get_if<int64_t>(&raw.args[1].value);
    if (index == nullptr || *index < 0 || *index >= static_cast<int64_t>(list->indices.size()) ||
        raw.results.size() != 1 || raw.results[0] < 0) {
      return malformed("getitem does not pick from a list of tensors");
    }
    std::vector<ir::ValueId> picked;
    DC_ASSIGN_OR_RETURN(const int position,
                        operand(list->indices[static_cast<size_t>(*index)], false, picked));
    if (position < 0) return malformed("getitem picks None");
    return draft_.define(raw.results[0], picked[0], draft_.base_offset(picked[0]));
  }

  Draft& draft_;
};

}  // namespace

Status add_nodes(Draft& draft) { return NodeBuilder(draft).run(); }

}  // namespace dc::frontend
