#include "src/frontend/inputs.h"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_set>

namespace dc::frontend {
namespace {

using base::ErrorKind;
using base::Status;

// Operators through which an index stays an index.
constexpr std::array<std::string_view, 9> kTransparent = {
    "aten.view.default",  "aten._unsafe_view.default",    "aten.slice.Tensor",
    "aten.select.int",    "aten.constant_pad_nd.default", "aten._to_copy.default",
    "aten.clone.default", "aten.unsqueeze.default",       "aten.expand.default"};

struct IndexUse {
  bool embedding = false;  // else it selects classes
  int64_t bound = 0;
};

std::optional<int64_t> bound_of(const ir::Graph& graph, const ir::Node& node, std::string_view arg,
                                size_t dim_from_end) {
  const ir::Arg* found = node.find_arg(arg);
  const auto* operand = found == nullptr ? nullptr : std::get_if<ir::OperandRef>(&found->value);
  if (operand == nullptr) return std::nullopt;
  const ir::Shape& shape =
      graph.value(node.operands[static_cast<size_t>(operand->index)]).type.shape;
  if (shape.size() <= dim_from_end) return std::nullopt;
  return shape[shape.size() - 1 - dim_from_end];
}

bool reads_as(const ir::Node& node, std::string_view arg, int operand) {
  const ir::Arg* found = node.find_arg(arg);
  const auto* read = found == nullptr ? nullptr : std::get_if<ir::OperandRef>(&found->value);
  return read != nullptr && read->index == operand;
}

std::optional<IndexUse> direct_use(const ir::Graph& graph, const ir::Node& node, int operand) {
  if (node.overload == "aten.embedding.default" && reads_as(node, "indices", operand)) {
    const auto rows = bound_of(graph, node, "weight", 1);
    if (rows) return IndexUse{true, *rows};
  }
  if (node.overload == "aten.nll_loss_forward.default" && reads_as(node, "target", operand)) {
    const auto classes = bound_of(graph, node, "self", 0);
    if (classes) return IndexUse{false, *classes};
  }
  // A decomposed nll_loss gathers the chosen classes from the last dim.
  if (node.overload == "aten.gather.default" && reads_as(node, "index", operand)) {
    const auto classes = bound_of(graph, node, "self", 0);
    if (classes) return IndexUse{false, *classes};
  }
  return std::nullopt;
}

// Whether the node hands this operand on as its result.
bool passes_on(const ir::Node& node, int operand) {
  if (node.overload == "aten.where.self") return operand == 1;
  return operand == 0 && std::find(kTransparent.begin(), kTransparent.end(),
                                   node.overload.name()) != kTransparent.end();
}

// Follows an integer input to an embedding or a loss.
std::optional<IndexUse> index_use(const ir::Graph& graph, ir::ValueId start) {
  std::vector<ir::ValueId> queue = {start};
  std::unordered_set<int32_t> seen;
  for (size_t i = 0; i < queue.size(); ++i) {
    auto uses = graph.value(queue[i]).uses;
    std::sort(uses.begin(), uses.end(), [](const ir::Use& a, const ir::Use& b) {
      return a.node != b.node ? a.node < b.node : a.operand < b.operand;
    });
    for (const ir::Use& use : uses) {
      const ir::Node& node = graph.node(use.node);
      if (const auto found = direct_use(graph, node, use.operand)) return found;
      if (!passes_on(node, use.operand) || !seen.insert(use.node.v).second) continue;
      for (const ir::ValueId result : node.results) {
        if (result.valid()) queue.push_back(result);
      }
    }
  }
  return std::nullopt;
}

void guess(const ir::Graph& graph, ir::ValueId value, ir::InputSpec& input) {
  const auto named = [&input](std::string_view part) {
    return input.name.find(part) != std::string::npos;
  };
  input.low = 0;
  input.high = 0;
  if (base::is_floating(input.type.dtype)) {
    input.role = named("mask") ? ir::InputRole::Mask : ir::InputRole::Float;
    input.high = 1;
    return;
  }
  if (input.type.dtype == base::DType::Bool || named("mask")) {
    input.role = ir::InputRole::Mask;
    input.high = 2;
    return;
  }
  const std::optional<IndexUse> use = index_use(graph, value);
  if (use) input.high = static_cast<double>(use->bound);
  const bool selects = (use && !use->embedding) || named("label") || named("target");
  if (named("position")) {
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
      input.role = given->role;
      input.low = given->low;
      input.high = given->high;
      input.next = given->next;
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
