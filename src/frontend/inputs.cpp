#include "src/frontend/inputs.h"

#include <algorithm>
#include <optional>

#include "src/frontend/arguments.h"
#include "src/frontend/index_use.h"

namespace dc::frontend {
namespace {

using base::ErrorKind;
using base::Status;

// Names of integer masks whose ones say what counts, as in the exporter's inputs.py.
bool is_counting(const std::string& name) {
  return name == "mask" || name == "attn_mask" || name == "input_mask" || name == "loss_mask";
}

void guess(const ir::Graph& graph, ir::ValueId value, ir::InputSpec& input) {
  const auto named = [&input](std::string_view part) {
    return input.name.find(part) != std::string::npos;
  };
  input.low = 0;
  input.high = 0;
  if (base::is_floating(input.type.dtype)) {
    input.role = ir::InputRole::Float;
    input.high = 1;
    return;
  }
  const std::optional<IndexUse> use = index_use(graph, value);
  const bool boolean = input.type.dtype == base::DType::Bool;
  const bool labels = named("label") || named("target");
  if (!use && (boolean || (named("mask") && !labels))) {
    // Masks are filled with ones, and True in PyTorch's own padding masks leaves out.
    const bool counting = named("attention_mask") || (!boolean && is_counting(input.name));
    input.role = counting ? ir::InputRole::Mask : ir::InputRole::Class;
    input.high = 2;
    input.guessed = !counting && !boolean;
    return;
  }
  if (use) {
    input.high = static_cast<double>(use->bound);
    input.ignored = use->ignored;
  }
  input.guessed = !use || !use->of_all;
  const bool selects = (use && !use->embedding) || labels;
  if (named("position") && (!use || use->embedding)) {
    input.role = ir::InputRole::Positions;
  } else if (selects) {
    input.role = input.type.shape.size() > 1 ? ir::InputRole::Labels : ir::InputRole::Class;
  } else {
    input.role = ir::InputRole::Tokens;
  }
}

bool is_loss_scale(const Description& description, const ir::InputSpec& input) {
  return input.name == description.loss_scale && input.type.numel() == 1 &&
         base::is_floating(input.type.dtype);
}

// Whether an input of this type can have the role.
bool suits(ir::InputRole role, base::DType dtype) {
  switch (role) {
    case ir::InputRole::Tokens:
    case ir::InputRole::Labels:
    case ir::InputRole::Positions:
    case ir::InputRole::Class:
      return !base::is_floating(dtype);
    case ir::InputRole::Float:
    case ir::InputRole::LossScale:
      return base::is_floating(dtype);
    case ir::InputRole::Mask:
      return true;
  }
  return false;
}

ir::ValueId value_of(const ir::Graph& graph, const std::string& name) {
  for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    const ir::Node& node = graph.node(id);
    if (node.kind == ir::OpKind::Input &&
        std::get<std::string>(node.find(ir::Attr::Name)->value) == name) {
      return node.results[0];
    }
  }
  return {};
}

}  // namespace

Status describe_inputs(const Description& description, ir::Step& step,
                       std::vector<std::string>& notes) {
  const ir::Graph& graph = step.programs[0].graph;
  size_t described = 0;
  std::string guessed;
  bool guessed_labels = false;
  for (ir::InputSpec& input : step.inputs) {
    if (is_loss_scale(description, input)) {
      input.role = ir::InputRole::LossScale;
      input.low = input.high = 1;
      continue;
    }
    const auto given = std::find_if(
        description.inputs.begin(), description.inputs.end(),
        [&input](const InputDescription& candidate) { return candidate.name == input.name; });
    if (given != description.inputs.end()) {
      if (!suits(given->role, input.type.dtype)) {
        return malformed("input " + input.name + " is described as what " +
                         std::string(base::name(input.type.dtype)) + " cannot be");
      }
      input.role = given->role;
      input.low = given->low;
      input.high = given->high;
      input.next = given->next;
      input.guessed = given->guessed;
      input.ignored = given->ignored;
      ++described;
      continue;
    }
    guess(graph, value_of(graph, input.name), input);
    guessed_labels = guessed_labels || input.role == ir::InputRole::Labels;
    guessed += (guessed.empty() ? "" : ", ") + input.name;
  }
  if (described != description.inputs.size()) {
    return Status(ErrorKind::BadInput, "DC2052",
                  "the archive describes inputs that its graph does not have; export it again");
  }
  std::stable_partition(step.inputs.begin(), step.inputs.end(), [](const ir::InputSpec& input) {
    return input.role != ir::InputRole::LossScale;
  });
  if (!guessed.empty()) {
    notes.push_back("the archive does not say what its inputs are; guessed for " + guessed);
    if (guessed_labels) {
      notes.push_back(
          "the archive does not say whether its model shifts the labels; from a token file it gets "
          "labels that equal the tokens");
    }
  }
  return base::ok_status();
}

}  // namespace dc::frontend
