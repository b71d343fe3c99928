#include "src/passes/fuse/push_slices.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "src/ir/builder.h"
#include "src/passes/fuse/elementwise_groups.h"
#include "src/passes/fuse/placed_parts.h"
#include "src/passes/fuse/value_readers.h"

namespace dc::passes {
namespace {

using base::IndexRange;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

// Of a slice of step 1: the indices it has. Types say them: its offset is that of its first one.
std::optional<IndexRange> slice_range(const Graph& graph, const Node& node) {
  if (node.kind != ir::OpKind::Aten || node.overload != "aten.slice.Tensor") return {};
  const ir::TensorType &whole = graph.value(node.operands[0]).type,
                       &part = graph.value(node.results[0]).type;
  const int64_t dim = named_dim(node, whole.shape.size());
  const auto at = static_cast<size_t>(dim);
  if (part.strides != whole.strides || whole.strides[at] == 0 || part.numel() == 0) return {};
  const int64_t begin = (part.offset - whole.offset) / whole.strides[at];
  return IndexRange{dim, begin, begin + part.shape[at]};
}

// Strides without gaps, the dims in the order of `like`.
ir::Strides dense_strides(const ir::Shape& shape, const ir::Strides& like) {
  std::vector<size_t> order(shape.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(), [&](size_t dim) { return like[dim]; });
  ir::Strides strides = like;
  int64_t next = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = next;
    next *= shape[order[i]];
  }
  return strides;
}

class Pushing {
 public:
  explicit Pushing(Graph& graph) : graph_(graph) {}

  std::vector<NodeId> run() {
    for (NodeId id = graph_.first(); id.valid(); id = graph_.next(id)) {
      const Node& node = graph_.node(id);
      const std::vector<PlacedPart> parts = placed_parts(graph_, node);
      if (parts.empty()) continue;
      readers_.insert(id);
      const PartMakers made = part_makers(graph_, node, parts);
      readers_.insert(made.makers.begin(), made.makers.end());
    }
    if (readers_.empty()) return {};
    // The last one first: slices of its operands are then pushed on.
    for (NodeId id = graph_.last(); id.valid();) {
      const NodeId previous = graph_.previous(id);
      if (const std::vector<NodeId> slices = slices_of(id); !slices.empty()) push(id, slices);
      id = previous;
    }
    std::erase_if(made_, [this](NodeId id) { return !graph_.contains(id); });
    return std::move(made_);
  }

 private:
  // All that read the node's value, if they are as push_slices() takes them.
  std::vector<NodeId> slices_of(NodeId id) const {
    const Node& node = graph_.node(id);
    if (!is_fusible(graph_, node) || is_output(graph_, node.results[0])) return {};
    std::vector<NodeId> slices;
    std::vector<IndexRange> ranges;
    for (const ir::Use& use : graph_.value(node.results[0]).uses) {
      const auto range = slice_range(graph_, graph_.node(use.node));
      if (!range || !is_part(node, graph_.node(use.node).results[0])) return {};
      const bool overlaps = std::ranges::any_of(ranges, [&](const IndexRange& other) {
        return other.dim != range->dim || (other.begin < range->end && range->begin < other.end);
      });
      if (overlaps) return {};
      ranges.push_back(*range);
      slices.push_back(use.node);
    }
    return slices;
  }
  bool is_part(const Node& maker, ValueId slice) const {
    const auto& uses = graph_.value(slice).uses;
    return !is_output(graph_, slice) && !uses.empty() &&
           std::ranges::all_of(uses, [&](const ir::Use& use) {
             return readers_.contains(use.node) &&
                    graph_.node(use.node).origin.phase == maker.origin.phase;
           });
  }

  void push(NodeId id, const std::vector<NodeId>& slices) {
    for (const NodeId slice : slices) {
      const ValueId part = graph_.node(slice).results[0];
      const IndexRange range = *slice_range(graph_, graph_.node(slice));
      ir::Builder builder(graph_, slice, graph_.node(id).origin, graph_.node(id).stream);
      const ir::Shape whole = graph_.value(graph_.node(id).results[0]).type.shape;
      ir::ValueList operands;
      for (const ValueId operand : graph_.node(id).operands)
        operands.push_back(sliced(builder, operand, range, whole));
      ir::TensorType type = graph_.value(part).type;
      type.offset = 0;
      type.strides =
          dense_strides(type.shape, graph_.value(graph_.node(id).results[0]).type.strides);
      const NodeId made = builder.repeat(Node(graph_.node(id)), std::move(operands)).id;
      const ValueId value = graph_.node(made).results[0];
      graph_.set_type(value, std::move(type));
      graph_.replace_all_uses(part, value);
      graph_.erase(slice);
      readers_.insert(made);
      made_.push_back(made);
    }
    graph_.erase(id);
  }

  // The operand for the part, itself where it has one element for all indices.
  ValueId sliced(const ir::Builder& builder, ValueId operand, const IndexRange& range,
                 const ir::Shape& shape) {
    const ir::Value& whole = graph_.value(operand);
    const IndexRange all{range.dim, 0, shape[static_cast<size_t>(range.dim)]};
    if (!has_elements_along(whole.type, all, shape.size())) return operand;
    const int64_t dim = range.dim + static_cast<int64_t>(whole.type.shape.size()) -
                        static_cast<int64_t>(shape.size());
    ir::TensorType type = whole.type;
    type.offset += range.begin * type.strides[static_cast<size_t>(dim)];
    type.shape[static_cast<size_t>(dim)] = range.end - range.begin;
    return ir::Builder(builder).make_aten(
        "aten.slice.Tensor", {operand}, {*whole.name + "_part", std::move(type)},
        {{"self", ir::OperandRef{0}}, {"dim", dim}, {"start", range.begin}, {"end", range.end}});
  }

  Graph& graph_;
  std::set<NodeId> readers_;  // what puts parts in their place, and what makes these
  std::vector<NodeId> made_;
};

}  // namespace

std::vector<NodeId> push_slices(Graph& graph) { return Pushing(graph).run(); }

}  // namespace dc::passes
