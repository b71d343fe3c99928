#include "src/passes/fuse/placed_parts.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "src/passes/fuse/elementwise_groups.h"
#include "src/passes/fuse/value_readers.h"

namespace dc::passes {
namespace {

using base::IndexRange;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

constexpr size_t kMostParts = 8;

int64_t integer(const Node& node, std::string_view name, int64_t otherwise) {
  const ir::Arg* arg = node.find_arg(name);
  const auto* value = arg == nullptr ? nullptr : std::get_if<int64_t>(&arg->value);
  return value == nullptr ? otherwise : *value;
}

std::vector<PlacedPart> parts_of_cat(const Graph& graph, const Node& node, int64_t dim) {
  const ir::TensorType& whole = graph.value(node.results[0]).type;
  std::vector<PlacedPart> parts;
  int64_t next = 0;
  for (const ValueId operand : node.operands) {
    const ir::TensorType& part = graph.value(operand).type;
    if (part.shape.size() != whole.shape.size() || part.dtype != whole.dtype) return {};
    const int64_t size = part.shape[static_cast<size_t>(dim)];
    if (size == 0) return {};
    parts.push_back({operand, {dim, next, next + size}});
    next += size;
  }
  return parts.size() < 2 || parts.size() > kMostParts ? std::vector<PlacedPart>() : parts;
}

std::vector<PlacedPart> part_of_slice(const Graph& graph, const Node& node, int64_t dim) {
  const ir::TensorType& whole = graph.value(node.results[0]).type;
  const ir::TensorType& part = graph.value(node.operands[0]).type;
  const int64_t size = whole.shape[static_cast<size_t>(dim)];
  const int64_t own = part.shape[static_cast<size_t>(dim)];
  int64_t start = integer(node, "start", 0);
  start = std::clamp<int64_t>(start < 0 ? start + size : start, 0, size);
  if (integer(node, "step", 1) != 1 || part.dtype != whole.dtype || own == 0 || own >= size ||
      own > size - start)
    return {};
  return {{node.operands[0], {dim, start, start + own}}};
}

// Looks from the parts up to what makes them.
class MakerSearch {
 public:
  MakerSearch(const Graph& graph, const Node& node, const std::vector<PlacedPart>& parts)
      : graph_(graph), node_(node), parts_(parts) {}

  PartMakers run() {
    for (size_t part = 0; part < parts_.size(); ++part) look(parts_[part].value, part);
    PartMakers made;
    for (NodeId id = node_.id; made.makers.size() < part_of_.size();) {
      id = graph_.previous(id);
      if (part_of_.contains(id)) made.makers.push_back(id);
    }
    std::ranges::reverse(made.makers);
    for (const NodeId maker : made.makers) add_operands(graph_.node(maker), made.operands);
    add_operands(node_, made.operands);
    return made;
  }

 private:
  void look(ValueId value, size_t part) {
    const NodeId maker = graph_.value(value).producer;
    if (part_of_.contains(maker) || !is_made_for(value, graph_.node(maker), part)) return;
    part_of_[maker] = part;
    for (const ValueId operand : graph_.node(maker).operands) look(operand, part);
  }
  bool is_made_for(ValueId value, const Node& maker, size_t part) const {
    return is_fusible(graph_, maker) && maker.origin.phase == node_.origin.phase &&
           graph_.value(value).type.shape == graph_.value(parts_[part].value).type.shape &&
           !is_output(graph_, value) &&
           std::ranges::all_of(graph_.value(value).uses, [&](const ir::Use& use) {
             if (use.node == node_.id)
               return parts_[part].value == value &&
                      std::ranges::count(parts_, value, &PlacedPart::value) == 1;
             const auto reader = part_of_.find(use.node);
             return reader != part_of_.end() && reader->second == part;
           });
  }
  void add_operands(const Node& node, std::vector<ValueId>& operands) const {
    for (const ValueId operand : node.operands) {
      const bool is_known = part_of_.contains(graph_.value(operand).producer) ||
                            std::ranges::count(operands, operand) != 0;
      if (!is_known) operands.push_back(operand);
    }
  }

  const Graph& graph_;
  const Node& node_;
  const std::vector<PlacedPart>& parts_;
  std::map<NodeId, size_t> part_of_;  // of makers
};

}  // namespace

int64_t named_dim(const Node& node, size_t rank) {
  const int64_t dim = integer(node, "dim", 0);
  return dim < 0 ? dim + static_cast<int64_t>(rank) : dim;
}

std::vector<PlacedPart> placed_parts(const Graph& graph, const Node& node) {
  const bool is_cat = node.overload == "aten.cat.default";
  if (!is_cat && node.overload != "aten.slice_backward.default") return {};
  if (node.kind != ir::OpKind::Aten || node.provider != base::Provider::Native) return {};
  const ir::Shape& shape = graph.value(node.results[0]).type.shape;
  const int64_t dim = named_dim(node, shape.size());
  if (dim < 0 || dim >= static_cast<int64_t>(shape.size())) return {};
  return is_cat ? parts_of_cat(graph, node, dim) : part_of_slice(graph, node, dim);
}

PartMakers part_makers(const Graph& graph, const Node& node, const std::vector<PlacedPart>& parts) {
  PartMakers found = MakerSearch(graph, node, parts).run();
  found.dim = parts.front().range.dim;
  return found;
}

bool has_elements_along(const ir::TensorType& operand, const IndexRange& range, size_t rank) {
  const int64_t own =
      range.dim - static_cast<int64_t>(rank) + static_cast<int64_t>(operand.shape.size());
  return own >= 0 && operand.shape[static_cast<size_t>(own)] == range.end - range.begin;
}

}  // namespace dc::passes
