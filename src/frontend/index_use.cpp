#include "src/frontend/index_use.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace dc::frontend {
namespace {

// Operators through which an index stays an index; the first ones give parts.
constexpr std::array<std::string_view, 2> kParts = {"aten.slice.Tensor", "aten.select.int"};
constexpr std::array<std::string_view, 9> kTransparent = {kParts[0],
                                                          kParts[1],
                                                          "aten.view.default",
                                                          "aten._unsafe_view.default",
                                                          "aten.constant_pad_nd.default",
                                                          "aten._to_copy.default",
                                                          "aten.clone.default",
                                                          "aten.unsqueeze.default",
                                                          "aten.expand.default"};

template <size_t N>
bool is_in(const std::array<std::string_view, N>& names, const ir::Node& node) {
  return std::find(names.begin(), names.end(), node.overload.name()) != names.end();
}

const ir::Value* argument(const ir::Graph& graph, const ir::Node& node, std::string_view name) {
  const ir::Arg* found = node.find_arg(name);
  const auto* read = found == nullptr ? nullptr : std::get_if<ir::OperandRef>(&found->value);
  return read == nullptr ? nullptr : &graph.value(node.operands[static_cast<size_t>(read->index)]);
}

std::optional<int64_t> integer(const ir::Node& node, std::string_view name) {
  const ir::Arg* found = node.find_arg(name);
  const auto* value = found == nullptr ? nullptr : std::get_if<int64_t>(&found->value);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

bool reads_as(const ir::Node& node, std::string_view arg, int operand) {
  const ir::Arg* found = node.find_arg(arg);
  const auto* read = found == nullptr ? nullptr : std::get_if<ir::OperandRef>(&found->value);
  return read != nullptr && read->index == operand;
}

std::optional<int64_t> bound_of(const ir::Graph& graph, const ir::Node& node, std::string_view arg,
                                size_t dim_from_end) {
  const ir::Value* found = argument(graph, node, arg);
  if (found == nullptr || found->type.shape.size() <= dim_from_end) return std::nullopt;
  return found->type.shape[found->type.shape.size() - 1 - dim_from_end];
}

bool is_of_last_dim(const ir::Graph& graph, const ir::Node& node) {
  const ir::Value* self = argument(graph, node, "self");
  const std::optional<int64_t> dim = integer(node, "dim");
  return self != nullptr && dim &&
         (*dim == -1 || *dim + 1 == static_cast<int64_t>(self->type.shape.size()));
}

// one_hot(x, n) is traced as (x.unsqueeze(-1) == arange(n)).to(int64), without its check of x.
std::optional<int64_t> one_hot_classes(const ir::Graph& graph, const ir::Node& node) {
  const ir::Value* self = argument(graph, node, "self");
  const ir::Value* other = argument(graph, node, "other");
  if (self == nullptr || other == nullptr || other->type.shape.size() != 1) return std::nullopt;
  const ir::Node& row = graph.node(other->producer);
  const bool from_0 =
      row.overload == "aten.arange.default" ||
      (row.overload == "aten.arange.start_step" && integer(row, "start").value_or(0) == 0 &&
       integer(row, "step").value_or(1) == 1);
  if (!from_0 || graph.node(self->producer).overload != "aten.unsqueeze.default" ||
      self->type.shape.empty() || self->type.shape.back() != 1) {
    return std::nullopt;
  }
  for (const ir::Use& use : graph.value(node.results[0]).uses) {
    const ir::Node& user = graph.node(use.node);
    if (user.overload != "aten._to_copy.default" ||
        graph.value(user.results[0]).type.dtype != base::DType::I64) {
      return std::nullopt;
    }
  }
  return other->type.shape[0];
}

bool is_loss(const ir::Node& node) {
  return node.overload == "aten.nll_loss_forward.default" ||
         node.overload == "aten.nll_loss2d_forward.default";
}

// Of images classes are the second of four dims.
std::optional<IndexUse> use_by_loss(const ir::Graph& graph, const ir::Node& node) {
  const size_t from_end = node.overload == "aten.nll_loss2d_forward.default" ? 2 : 0;
  const std::optional<int64_t> classes = bound_of(graph, node, "self", from_end);
  if (!classes) return std::nullopt;
  IndexUse use{false, *classes};
  use.ignored = integer(node, "ignore_index").value_or(base::kIgnoredLabel);
  return use;
}

// A decomposed nll_loss gathers the chosen classes from the last dim.
bool gathers_classes(const ir::Graph& graph, const ir::Node& node, int operand) {
  return node.overload == "aten.gather.default" && reads_as(node, "index", operand) &&
         is_of_last_dim(graph, node);
}

std::optional<IndexUse> direct_use(const ir::Graph& graph, const ir::Node& node, int operand) {
  std::optional<int64_t> bound;
  if (node.overload == "aten.embedding.default" && reads_as(node, "indices", operand)) {
    bound = bound_of(graph, node, "weight", 1);
    if (bound) return IndexUse{true, *bound};
  } else if (is_loss(node) && reads_as(node, "target", operand)) {
    return use_by_loss(graph, node);
  } else if (gathers_classes(graph, node, operand)) {
    bound = bound_of(graph, node, "self", 0);
  } else if (node.overload == "aten.eq.Tensor" && operand == 0) {
    bound = one_hot_classes(graph, node);
  }
  return bound ? std::optional(IndexUse{false, *bound}) : std::nullopt;
}

// Whether the node hands this operand on as its result.
bool passes_on(const ir::Node& node, int operand) {
  if (node.overload == "aten.where.self") return operand == 1;
  return operand == 0 && is_in(kTransparent, node);
}

std::optional<IndexUse> least(const std::vector<IndexUse>& uses) {
  const auto found =
      std::min_element(uses.begin(), uses.end(),
                       [](const IndexUse& a, const IndexUse& b) { return a.bound < b.bound; });
  return found == uses.end() ? std::nullopt : std::optional(*found);
}

// What each part of an input indexes; the key is the node that takes the part, invalid for all.
using Parts = std::map<ir::NodeId, std::vector<IndexUse>>;

Parts parts_of(const ir::Graph& graph, ir::ValueId input) {
  struct Reached {
    ir::ValueId value;
    ir::NodeId part;
  };
  Parts parts;
  std::vector<Reached> queue = {{input, ir::NodeId()}};
  std::unordered_set<int32_t> seen;
  for (size_t i = 0; i < queue.size(); ++i) {
    const auto [value, part] = queue[i];
    auto uses = graph.value(value).uses;
    std::sort(uses.begin(), uses.end(), [](const ir::Use& a, const ir::Use& b) {
      return a.node != b.node ? a.node < b.node : a.operand < b.operand;
    });
    for (const ir::Use& use : uses) {
      const ir::Node& node = graph.node(use.node);
      if (const auto found = direct_use(graph, node, use.operand)) parts[part].push_back(*found);
      if (!passes_on(node, use.operand) || !seen.insert(use.node.v).second) continue;
      const bool takes_part = is_in(kParts, node) && graph.value(node.results[0]).type.shape !=
                                                         graph.value(value).type.shape;
      const ir::NodeId inner = takes_part && !part.valid() ? node.id : part;
      parts[inner];
      queue.push_back({node.results[0], inner});
    }
  }
  return parts;
}

}  // namespace

std::optional<IndexUse> index_use(const ir::Graph& graph, ir::ValueId input) {
  const Parts parts = parts_of(graph, input);
  if (const auto whole = parts.find(ir::NodeId()); whole != parts.end() && !whole->second.empty())
    return least(whole->second);
  std::vector<IndexUse> bounds;
  size_t without = 0;
  for (const auto& [part, uses] : parts) {
    const std::optional<IndexUse> bound = least(uses);
    if (bound) bounds.push_back(*bound);
    if (!bound && part.valid()) ++without;
  }
  std::optional<IndexUse> use = least(bounds);
  if (!use) return use;
  use->of_all = without == 0 &&
                std::all_of(bounds.begin(), bounds.end(),
                            [&use](const IndexUse& bound) { return bound.bound == use->bound; });
  return use;
}

}  // namespace dc::frontend
