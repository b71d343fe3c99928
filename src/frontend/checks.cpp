#include "src/frontend/checks.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "src/frontend/symbolic.h"

namespace dc::frontend {
namespace {

using base::ErrorKind;
using base::Status;

// What is not supported -> where it occurs first and how often.
struct Sighting {
  std::string module;
  int count = 0;
};
using Sightings = std::map<std::string, Sighting>;

std::string where(const std::string& module) {
  return module.empty() ? "the root module" : "module " + module;
}

std::string list_of(const Sightings& sightings) {
  std::string text;
  for (const auto& [what, seen] : sightings) {
    text += (text.empty() ? "" : "; ") + what + " (" + std::to_string(seen.count) + "x, first in " +
            where(seen.module) + ")";
  }
  return text;
}

void note(Sightings& sightings, const std::string& what, const std::string& module) {
  Sighting& seen = sightings[what];
  if (seen.count++ == 0) seen.module = module;
}

Status check_trains(const RawModel& model) {
  const auto has = [&model](RawOutputKind kind) {
    return std::any_of(model.outputs.begin(), model.outputs.end(),
                       [kind](const RawOutput& output) { return output.kind == kind; });
  };
  const bool loss = has(RawOutputKind::Loss);
  const bool gradients = has(RawOutputKind::ParameterGradient);
  if (loss && gradients) return base::ok_status();
  const std::string found = loss ? "a loss but no gradients of parameters"
                                 : "no loss and no backward pass (a forward-only export)";
  return Status(ErrorKind::BadInput, "DC2041",
                "the archive holds " + found +
                    "; run scripts/export.py (export_train_step) on the module that returns the "
                    "loss, which writes forward, loss and backward together");
}

Status data_dependent(const std::string& what, const std::string& module) {
  return Status(ErrorKind::BadInput, "DC2042",
                what + " in " + where(module) +
                    ": a shape that depends on data cannot be compiled ahead of time; rewrite it "
                    "with a fixed size (a mask or a padded table instead of nonzero, item or "
                    "boolean indexing) and export again");
}

Status check_data_dependence(const RawModel& model) {
  for (const RawNode& node : model.nodes) {
    const std::string_view overload = overload_of(model.names.text(node.target));
    const ir::AtenInfo* info = ir::aten_info(overload);
    if (info != nullptr && info->data_dependent) {
      return data_dependent(std::string(overload), model.names.text(node.module));
    }
    for (const Name result : node.results) {
      const auto tensor = model.tensors.find(result);
      if (tensor == model.tensors.end() || tensor->second.symbolic.empty()) continue;
      for (const std::string& symbol : symbols_of(tensor->second.symbolic[0].expression)) {
        if (!symbol.starts_with("u")) continue;
        return data_dependent(std::string(overload) + " has a result of unknown size " + symbol,
                              model.names.text(node.module));
      }
    }
  }
  return base::ok_status();
}

void check_tensor(const RawModel& model, Name name, const std::string& module, Sightings& found) {
  const auto tensor = model.tensors.find(name);
  if (tensor == model.tensors.end()) return;
  if (!base::dtype_from_export(tensor->second.dtype)) {
    note(found, "tensors of element type number " + std::to_string(tensor->second.dtype), module);
  }
  if (tensor->second.layout != 7) note(found, "tensors that are not strided", module);
}

void check_node(const RawModel& model, const RawNode& node, Sightings& found) {
  const std::string overload(overload_of(model.names.text(node.target)));
  const std::string& module = model.names.text(node.module);
  const ir::AtenInfo* info = ir::aten_info(overload);
  if (overload != kGetItem && info == nullptr) note(found, overload, module);
  if (info != nullptr && info->mutates)
    note(found, overload + ", which writes its argument", module);
  for (const RawArg& arg : node.args) {
    if (!arg.refusal.empty()) note(found, overload + " with " + arg.refusal, module);
  }
  for (const Name result : node.results) {
    if (result >= 0) check_tensor(model, result, module, found);
  }
}

Status check_supported(const RawModel& model) {
  Sightings found;
  for (const RawNode& node : model.nodes) check_node(model, node, found);
  for (const RawInput& input : model.inputs) {
    check_tensor(model, input.value, "", found);
    if (input.kind == RawInputKind::Token || input.kind == RawInputKind::Other) {
      note(found, "graph inputs of kind " + model.names.text(input.target), "");
    }
  }
  for (const RawOutput& output : model.outputs) {
    if (output.kind == RawOutputKind::Token || output.kind == RawOutputKind::Other) {
      note(found, "graph outputs of kind " + model.names.text(output.target), "");
    }
  }
  if (found.empty()) return base::ok_status();
  return Status(ErrorKind::Unsupported, "DC2043",
                "not supported: " + list_of(found) +
                    ". Replace these by other operators in the model and export it again with "
                    "scripts/export.py");
}

const RawTensor* tensor_arg(const RawModel& model, const RawNode& node, std::string_view name) {
  for (const RawArg& arg : node.args) {
    const auto* operand = std::get_if<ir::OperandRef>(&arg.value);
    if (operand == nullptr || model.names.text(arg.name) != name) continue;
    const auto tensor = model.tensors.find(operand->index);
    return tensor == model.tensors.end() ? nullptr : &tensor->second;
  }
  return nullptr;
}

// The backward of fused attention reads log-sum-exp [batch, heads, rows]. Official joint exports of
// torch 2.11 hand it the attention matrix instead, and nothing notices at run time.
Status check_attention(const RawModel& model) {
  for (const RawNode& node : model.nodes) {
    const std::string_view overload = overload_of(model.names.text(node.target));
    if (!overload.starts_with("aten._scaled_dot_product_") ||
        overload.find("_backward") == std::string_view::npos) {
      continue;
    }
    const RawTensor* lse = tensor_arg(model, node, "logsumexp");
    const RawTensor* query = tensor_arg(model, node, "query");
    if (lse == nullptr || query == nullptr || query->shape.size() != 4) continue;
    if (lse->shape.size() == 3 && lse->shape[0] == query->shape[0] &&
        lse->shape[1] == query->shape[1] && lse->shape[2] >= query->shape[2]) {
      continue;
    }
    return Status(ErrorKind::BadInput, "DC2045",
                  "the backward of attention in " + where(model.names.text(node.module)) +
                      " gets a log-sum-exp of " + std::to_string(lse->shape.size()) +
                      " dims instead of [batch, heads, rows]: the exporter decomposed the forward "
                      "only, and the gradients would be wrong; export with scripts/export.py, or "
                      "force the math attention backend during the export");
  }
  return base::ok_status();
}

}  // namespace

std::string_view overload_of(std::string_view target) {
  constexpr std::string_view kPrefix = "torch.ops.";
  if (target.starts_with(kPrefix)) target.remove_prefix(kPrefix.size());
  return target;
}

Status check_exported(const RawModel& model) {
  DC_RETURN_IF_ERROR(check_trains(model));
  return check_data_dependence(model);
}

Status check_evaluation(const RawModel& model) {
  const bool is_loss = model.outputs.size() == 1 && model.outputs[0].kind == RawOutputKind::Loss;
  if (is_loss) return check_data_dependence(model);
  return Status(ErrorKind::BadInput, "DC2041",
                "the evaluation has " + std::to_string(model.outputs.size()) +
                    " outputs, not a loss alone; export the model again with eval=True");
}

Status check_model(const RawModel& model) {
  DC_RETURN_IF_ERROR(check_supported(model));
  return check_attention(model);
}

}  // namespace dc::frontend
