// Operators: arguments, results and their types.
#include <algorithm>

#include "src/frontend/arguments.h"
#include "src/frontend/checks.h"
#include "src/frontend/draft.h"
#include "src/frontend/kernel_types.h"
#include "src/frontend/operator_args.h"

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
    drop_masked(args, raw.results);
    if (overload == "aten.native_dropout.default")
      DC_RETURN_IF_ERROR(check_dropout(args, operands));
    DC_ASSIGN_OR_RETURN(const std::vector<ResultType> types,
                        types_of(raw.results, overload, operands, args));
    std::vector<ir::NewValue> results;
    for (size_t i = 0; i < types.size(); ++i) {
      const Name name = raw.results[i];
      results.push_back(name < 0 ? ir::NewValue{"-", {}}
                                 : ir::NewValue{draft_.text(name), types[i].type});
    }
    ir::Node& node = draft_.graph.insert_aten(
        {}, std::string(overload), operands, std::move(results), std::move(args),
        {draft_.text(raw.module), raw.phase, raw.accumulates});
    for (size_t i = 0; i < raw.results.size(); ++i) {
      if (raw.results[i] < 0) continue;
      DC_RETURN_IF_ERROR(draft_.define(raw.results[i], node.results[i], types[i].placement));
    }
    if (!raw.marked) draft_.unmarked.push_back(node.id);
    return base::ok_status();
  }

  // A pass makes an op of the project's own of it, which takes nothing else.
  Status check_dropout(const std::vector<ir::Arg>& args,
                       const std::vector<ir::ValueId>& operands) const {
    const ir::Arg* p = OperatorArgs(args).find("p");
    const auto* real = p == nullptr ? nullptr : std::get_if<double>(&p->value);
    const auto* integer = p == nullptr ? nullptr : std::get_if<int64_t>(&p->value);
    const double share = real != nullptr      ? *real
                         : integer != nullptr ? static_cast<double>(*integer)
                                              : -1;
    if (!(share >= 0 && share <= 1)) return malformed("its argument 'p' is no number from 0 to 1");
    if (operands.size() != 1 || !base::is_floating(draft_.graph.value(operands[0]).type.dtype))
      return malformed("it reads no floating-point tensor");
    return base::ok_status();
  }

  // The types of a node's results; where kernels give another element type than archives say,
  // theirs.
  Result<std::vector<ResultType>> types_of(const std::vector<Name>& names,
                                           std::string_view overload,
                                           const std::vector<ir::ValueId>& values,
                                           const std::vector<ir::Arg>& args) {
    std::vector<Operand> operands;
    operands.reserve(values.size());
    for (const ir::ValueId value : values) operands.push_back(draft_.operand(value));
    const OperandType operand_type = [&](std::string_view name) -> std::optional<base::DType> {
      for (const ir::Arg& arg : args) {
        const auto* single = std::get_if<ir::OperandRef>(&arg.value);
        if (single == nullptr || single->index < 0 || arg.name != name) continue;
        return operands[static_cast<size_t>(single->index)].type.dtype;
      }
      return std::nullopt;
    };
    std::vector<Recorded> recorded;
    for (const Name name : names) {
      if (name < 0) {
        recorded.emplace_back();
        continue;
      }
      DC_ASSIGN_OR_RETURN(ir::TensorType type, draft_.type_of(name));
      const auto given = kernel_dtype(overload, recorded.size(), operand_type);
      if (given && *given != type.dtype) {
        DC_RETURN_IF_ERROR(check_declared(name, type.dtype, operands));
        draft_.declare(name, type.dtype);
        type.dtype = *given;
      }
      recorded.push_back({draft_.text(name), std::move(type)});
    }
    return result_types(overload, operands, args, recorded);
  }

  // Checks an archive's element type that differs from the kernel's: it must be that of some
  // operand, or f32. PyTorch's shape functions give statistics of bf16 and f16 operands the type
  // of their sums.
  Status check_declared(Name name, base::DType dtype, const std::vector<Operand>& operands) const {
    const bool known = dtype == base::DType::F32 ||
                       std::any_of(operands.begin(), operands.end(),
                                   [dtype](const Operand& one) { return one.type.dtype == dtype; });
    if (known && base::is_floating(dtype)) return base::ok_status();
    return malformed(draft_.text(name) + " is recorded as " + std::string(base::name(dtype)) +
                     ", which is the element type of no operand");
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
    return draft_.define(raw.results[0], picked[0], draft_.operand(picked[0]).placement);
  }

  Draft& draft_;
};

}  // namespace

Status add_nodes(Draft& draft) { return NodeBuilder(draft).run(); }

}  // namespace dc::frontend
