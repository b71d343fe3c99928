#include "src/passes/fuse/elementwise_groups.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "src/base/expression.h"
#include "src/ir/effects.h"
#include "src/ir/native_ops.h"
#include "src/passes/fuse/fusible_reduction.h"
#include "src/passes/fuse/placed_parts.h"

namespace dc::passes {
namespace {

using base::Expression;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

// A word that is the default where it is allowed, as in "approximate".
constexpr std::string_view kNone = "none";

// Arguments that say how a result lies, which its type says too.
bool is_about_memory(const ir::Arg& arg) {
  return std::holds_alternative<ir::DeviceArg>(arg.value) ||
         std::holds_alternative<ir::LayoutArg>(arg.value) ||
         std::holds_alternative<ir::MemoryFormatArg>(arg.value) ||
         std::holds_alternative<ir::DType>(arg.value);
}

bool can_be_written(const ir::Arg& arg) {
  if (const auto* word = std::get_if<std::string>(&arg.value))
    return *word == kNone || base::is_expression_word(*word);
  return std::holds_alternative<std::monostate>(arg.value) ||
         std::holds_alternative<ir::OperandRef>(arg.value) ||
         std::holds_alternative<bool>(arg.value) || std::holds_alternative<int64_t>(arg.value) ||
         std::holds_alternative<double>(arg.value);
}

}  // namespace

std::set<NodeId> waiting(const Graph& graph, std::span<const NodeId> reductions) {
  std::set<NodeId> found;
  // Through views.
  const std::function<bool(ValueId, bool)> may_wait = [&](ValueId value, bool is_sum) {
    const auto& uses = graph.value(value).uses;
    if (is_output(graph, value) ? !is_sum : uses.empty()) return false;
    return std::ranges::all_of(uses, [&](const ir::Use& use) {
      const Node& reader = graph.node(use.node);
      if (ir::is_plain_view(reader))
        return reader.results.size() == 1 && may_wait(reader.results[0], is_sum);
      return !is_sum && found.contains(use.node);
    });
  };
  for (const NodeId id : reductions) {
    const auto reduction = *fusible_reduction(graph, graph.node(id));
    const ir::Shape& shape = graph.value(reduction.value).type.shape;
    if (!folds_trailing(reduction.dims, shape) && may_wait(graph.node(id).results[0], true))
      found.insert(id);
  }
  if (found.empty()) return found;
  const std::vector<NodeId> order = graph.order();
  for (auto id = order.rbegin(); id != order.rend(); ++id)
    if (is_fusible(graph, graph.node(*id)) && may_wait(graph.node(*id).results[0], false))
      found.insert(*id);
  return found;
}

namespace {

// Whether one of the nodes reads what the view gives, or a view of it.
bool is_read_by(const Graph& graph, const Node& view, const std::set<NodeId>& nodes) {
  return std::ranges::any_of(view.results, [&](ValueId seen) {
    return seen.valid() && std::ranges::any_of(graph.value(seen).uses, [&](const ir::Use& use) {
             const Node& reader = graph.node(use.node);
             return nodes.contains(use.node) ||
                    (ir::is_plain_view(reader) && is_read_by(graph, reader, nodes));
           });
  });
}

// Whether the reduction folds rows that 32 threads each of a GPU fold as fast as more would; the
// kernel apart takes more of them for few long rows, in another order.
bool has_good_rows(const Graph& graph, NodeId id, const FusibleReduction& reduction) {
  constexpr int64_t kFewRows = 1024, kLongRow = 16384;
  const ir::TensorType& value = graph.value(reduction.value).type;
  const int64_t rows = graph.value(graph.node(id).results[0]).type.numel();
  return folds_trailing(reduction.dims, value.shape) &&
         (rows >= kFewRows || value.numel() / rows <= kLongRow);
}

// Sizes but leading ones of 1.
std::span<const int64_t> without_leading_ones(std::span<const int64_t> shape) {
  while (!shape.empty() && shape[0] == 1) shape = shape.subspan(1);
  return shape;
}

class Grouping {
 public:
  enum class Of : uint8_t { Elements, Rows };
  Grouping(const Graph& graph, std::span<const NodeId> reductions, Of of, std::set<NodeId> taken)
      : graph_(graph), of_rows_(of == Of::Rows), taken_(std::move(taken)) {
    position_.resize(graph.node_capacity());
    of_.assign(graph.node_capacity(), -1);
    for (const NodeId id : reductions) {
      FusibleReduction reduction = *fusible_reduction(graph, graph.node(id));
      if (taken_.contains(id)) continue;
      if (of_rows_ && !has_good_rows(graph, id, reduction)) continue;
      reductions_.emplace(id, std::move(reduction));
    }
    if (!of_rows_) find_parts();
    for (NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
      position_[id.index()] = static_cast<int>(kernels_before_.size());
      const Node& node = graph.node(id);
      const int before = kernels_before_.empty() ? 0 : kernels_before_.back();
      kernels_before_.push_back(
          before + (ir::runs(node) && !is_candidate(node) && !taken_.contains(id) ? 1 : 0));
    }
  }

  std::vector<ElementwiseGroup> run() {
    for (NodeId id = graph_.first(); id.valid(); id = graph_.next(id)) {
      const Node& node = graph_.node(id);
      if (!is_candidate(node) || makers_.contains(id)) continue;
      const int own = static_cast<int>(groups_.size());
      groups_.push_back({{id}, position_[id.index()]});
      of_[id.index()] = own;
      const auto parts = parts_.find(id);
      if (parts != parts_.end()) add_makers(parts->second.makers, own);
      for (const ValueId operand : operands_of(id)) {
        const int other = of_[graph_.value(made_by(operand)).producer.index()];
        if (other >= 0 && other != own && fit(other, own)) join(other, own);
      }
    }
    std::vector<ElementwiseGroup> found;
    for (Group& group : groups_) {
      if (group.members.size() < 2 || (of_rows_ && !reads_reductions(group))) continue;
      std::ranges::sort(group.members, {}, [this](NodeId id) { return position_[id.index()]; });
      const size_t reductions = reductions_of(group).size();
      found.push_back({std::move(group.members), reductions, of_rows_});
    }
    return found;
  }

 private:
  struct Group {
    std::vector<NodeId> members;
    int position = 0;  // of the last member
  };

  void find_parts() {
    for (NodeId id = graph_.first(); id.valid(); id = graph_.next(id)) {
      const std::vector<PlacedPart> parts = placed_parts(graph_, graph_.node(id));
      if (parts.empty() || taken_.contains(id)) continue;
      PartMakers made = part_makers(graph_, graph_.node(id), parts);
      if (std::ranges::any_of(made.makers, [&](NodeId maker) { return taken_.contains(maker); }))
        continue;
      makers_.insert(made.makers.begin(), made.makers.end());
      parts_.emplace(id, std::move(made));
    }
  }
  // They run where what puts their values in place does, in its shape.
  void add_makers(const std::vector<NodeId>& makers, int own) {
    std::vector<NodeId>& members = groups_[static_cast<size_t>(own)].members;
    members.insert(members.end(), makers.begin(), makers.end());
    for (const NodeId maker : makers) of_[maker.index()] = own;
  }

  bool is_candidate(const Node& node) const {
    if (taken_.contains(node.id)) return false;
    return is_fusible(graph_, node) || reductions_.contains(node.id) || parts_.contains(node.id);
  }
  std::span<const ValueId> operands_of(NodeId id) const {
    const auto parts = parts_.find(id);
    if (parts != parts_.end()) return parts->second.operands;
    const auto reduction = reductions_.find(id);
    if (reduction != reductions_.end()) return {&reduction->second.value, 1};
    return graph_.node(id).operands;
  }

  // The value itself, or what it is a view of.
  ValueId made_by(ValueId operand) const { return of_rows_ ? viewed(graph_, operand) : operand; }

  // Of the values that are no reductions'.
  const ir::Shape& shape(const Group& group) const {
    const NodeId member = group.members[0];
    const bool folds = reductions_.contains(member);
    const ValueId value = folds ? operands_of(member)[0] : graph_.node(member).results[0];
    return graph_.value(value).type.shape;
  }
  std::vector<const FusibleReduction*> reductions_of(const Group& group) const {
    std::vector<const FusibleReduction*> found;
    for (const NodeId member : group.members) {
      const auto reduction = reductions_.find(member);
      if (reduction != reductions_.end()) found.push_back(&reduction->second);
    }
    return found;
  }
  ir::Phase phase(const Group& group) const { return graph_.node(group.members[0]).origin.phase; }
  bool is_in(NodeId id, int a, int b) const {
    const int group = of_[id.index()];
    return group >= 0 && (group == a || group == b);
  }

  // `own` ends with the node that is looked at, so it is the later one.
  bool fit(int earlier, int own) const {
    const Group &first = groups_[static_cast<size_t>(earlier)],
                &second = groups_[static_cast<size_t>(own)];
    if (phase(first) != phase(second)) return false;
    if (of_rows_ ? !rows_fit(earlier, own) : shape(first) != shape(second)) return false;
    if (first.members.size() + second.members.size() > Expression::kMostOperations) return false;
    if (!parts_.empty() && !place_along_one_dim(first, second)) return false;
    if (!of_rows_ && !reductions_.empty() &&
        (!can_fold_together(first, second) || !saves_what_is_folded(earlier, own)))
      return false;
    for (const NodeId member : first.members) {
      const ValueId result = graph_.node(member).results[0];
      if (!is_read_late(result, result, earlier, own, second.position)) return false;
    }
    return tensors(earlier, own) <= Expression::kMostTensors && saves_memory(earlier, own);
  }

  // A reduction joins where what it folds need not be stored. If it is stored all the same, reading
  // it once more out of a cache takes less than what the fused kernel does for a reduction.
  bool saves_what_is_folded(int earlier, int own) const {
    const std::vector<const FusibleReduction*> all =
        reductions_of(groups_[static_cast<size_t>(own)]);
    return std::ranges::none_of(all, [&](const FusibleReduction* reduction) {
      return is_read_outside(reduction->value, earlier, own);
    });
  }

  // A kernel has windows along one dim.
  bool place_along_one_dim(const Group& first, const Group& second) const {
    std::set<int64_t> dims;
    for (const Group* group : {&first, &second}) {
      for (const NodeId member : group->members) {
        if (const auto parts = parts_.find(member); parts != parts_.end())
          dims.insert(parts->second.dim);
      }
    }
    return dims.size() <= 1;
  }

  // Whether their reductions fold the same dims, and none of them reads another one's value.
  bool can_fold_together(const Group& first, const Group& second) const {
    std::vector<const FusibleReduction*> all = reductions_of(first);
    for (const NodeId member : first.members) {
      if (!reductions_.contains(member)) continue;
      for (const NodeId reader : second.members) {
        const ValueId made = graph_.node(member).results[0];
        if (std::ranges::count(operands_of(reader), made) != 0) return false;
      }
    }
    const std::vector<const FusibleReduction*> others = reductions_of(second);
    all.insert(all.end(), others.begin(), others.end());
    return all.size() <= Expression::kMostReductions &&
           std::ranges::all_of(
               all, [&](const FusibleReduction* one) { return one->dims == all[0]->dims; });
  }

  // Whether a member reads a reduction of the group.
  bool reads_reductions(const Group& group) const {
    return std::ranges::any_of(group.members, [&](NodeId member) {
      return !reductions_.contains(member) &&
             std::ranges::any_of(graph_.node(member).operands, [&](ValueId operand) {
               const NodeId maker = graph_.value(made_by(operand)).producer;
               return reductions_.contains(maker) && std::ranges::count(group.members, maker) != 0;
             });
    });
  }

  // Whether the two groups compute for each element of one shape and for each of its rows, and all
  // that they read of each other is read so.
  bool rows_fit(int a, int b) const {
    std::vector<NodeId> members = groups_[static_cast<size_t>(a)].members;
    const std::vector<NodeId>& others = groups_[static_cast<size_t>(b)].members;
    members.insert(members.end(), others.begin(), others.end());
    const FusibleReduction* fold = nullptr;
    size_t reductions = 0;
    for (const NodeId member : members) {
      const auto reduction = reductions_.find(member);
      if (reduction == reductions_.end()) continue;
      if (fold == nullptr) fold = &reduction->second;
      if (reduction->second.dims != fold->dims ||
          shape_of(reduction->second.value) != shape_of(fold->value))
        return false;
      ++reductions;
    }
    if (reductions > Expression::kMostReductions) return false;
    const ir::Shape& elements = fold != nullptr ? shape_of(fold->value) : shape_of(members[0]);
    ir::Shape row = elements;
    if (fold != nullptr)
      for (const int64_t dim : fold->dims) row[static_cast<size_t>(dim)] = 1;
    const auto is_row = [&](std::span<const int64_t> shape) {
      return fold != nullptr && shape.size() <= row.size() &&
             std::ranges::equal(without_leading_ones(shape), without_leading_ones(row));
    };
    return std::ranges::all_of(members, [&](NodeId member) {
      const bool folds = reductions_.contains(member);
      if (!folds && shape_of(member) != elements && !is_row(shape_of(member))) return false;
      return std::ranges::all_of(operands_of(member), [&](ValueId operand) {
        const ValueId made = viewed(graph_, operand);
        const NodeId maker = graph_.value(made).producer;
        if (!is_in(maker, a, b)) return true;
        const bool gives_rows = reductions_.contains(maker) || shape_of(maker) != elements;
        if (!gives_rows) return made == operand;
        const ir::Shape& seen = shape_of(operand);
        if (folds) return false;
        if (made == operand) return is_row(seen);
        return (is_row(seen) || seen == elements) && reads_rows(graph_, made, operand);
      });
    });
  }
  const ir::Shape& shape_of(ValueId value) const { return graph_.value(value).type.shape; }
  const ir::Shape& shape_of(NodeId node) const { return shape_of(graph_.node(node).results[0]); }

  // Whether all that read `seen`, the value or a view of it, are of the two groups, or come after
  // `position`. Reductions may read it through views, operators may read rows so.
  bool is_read_late(ValueId value, ValueId seen, int a, int b, int position) const {
    return std::ranges::all_of(graph_.value(seen).uses, [&](const ir::Use& use) {
      const Node& reader = graph_.node(use.node);
      if (ir::is_plain_view(reader)) {
        return std::ranges::all_of(reader.results, [&](ValueId other) {
          return !other.valid() || is_read_late(value, other, a, b, position);
        });
      }
      if (is_in(use.node, a, b))
        return seen == value || reductions_.contains(use.node) ||
               (of_rows_ && reads_rows(graph_, value, seen));
      if (of_rows_ && taken_.contains(use.node)) return true;  // waits
      // Of groups of rows it is not known yet whether they become kernels.
      const int group = of_rows_ ? -1 : of_[use.node.index()];
      const int when =
          group < 0 ? position_[use.node.index()] : groups_[static_cast<size_t>(group)].position;
      return when > position;
    });
  }

  bool is_read_outside(ValueId value, int a, int b) const {
    return passes::is_read_outside(graph_, value,
                                   [&](NodeId reader) { return is_in(reader, a, b); });
  }

  std::set<ValueId> operands(int a, int b) const {
    std::set<ValueId> found;
    for (const int group : {a, b}) {
      for (const NodeId member : groups_[static_cast<size_t>(group)].members) {
        for (const ValueId operand : operands_of(member)) {
          if (!is_in(graph_.value(made_by(operand)).producer, a, b)) found.insert(operand);
        }
      }
    }
    return found;
  }

  size_t tensors(int a, int b) const {
    size_t count = operands(a, b).size();
    for (const int group : {a, b}) {
      for (const NodeId member : groups_[static_cast<size_t>(group)].members) {
        const bool may_be_kept = of_rows_ && reductions_.contains(member);
        count += may_be_kept || is_read_outside(graph_.node(member).results[0], a, b) ? 1 : 0;
      }
    }
    return count;
  }

  // The earlier group would run later, and what it reads live until then. That is no more than what
  // need not be stored any more, or nothing large runs in between.
  bool saves_memory(int earlier, int own) const {
    const int from = groups_[static_cast<size_t>(earlier)].position,
              to = groups_[static_cast<size_t>(own)].position;
    if (kernels_before_[static_cast<size_t>(from)] == kernels_before_[static_cast<size_t>(to)])
      return true;
    int64_t longer = 0, gone = 0;
    for (const ValueId operand : operands(earlier, earlier)) {
      const ValueId root = ir::view_root(graph_, operand);
      const auto is_late = [&](NodeId reader) { return position_[reader.index()] >= to; };
      if (!lives_until(graph_, root, is_late)) longer += graph_.value(root).type.bytes().v;
    }
    for (const NodeId member : groups_[static_cast<size_t>(earlier)].members) {
      const ValueId result = graph_.node(member).results[0];
      const bool was_stored = is_read_outside(result, earlier, earlier);
      if (was_stored && !is_read_outside(result, earlier, own))
        gone += graph_.value(result).type.bytes().v;
    }
    return longer <= gone;
  }

  void join(int earlier, int own) {
    Group& from = groups_[static_cast<size_t>(earlier)];
    Group& to = groups_[static_cast<size_t>(own)];
    for (const NodeId member : from.members) of_[member.index()] = own;
    to.members.insert(to.members.end(), from.members.begin(), from.members.end());
    from.members.clear();
  }

  const Graph& graph_;
  const bool of_rows_;
  const std::set<NodeId> taken_;     // no candidates; of rows: what waits
  std::vector<int> position_;        // by node
  std::vector<int> kernels_before_;  // by position; of kernels that are no candidates
  std::vector<int> of_;              // the group of each node, or -1
  std::vector<Group> groups_;
  std::map<NodeId, FusibleReduction> reductions_;
  std::map<NodeId, PartMakers> parts_;  // by what puts them in place
  std::set<NodeId> makers_;             // of these
};

}  // namespace

bool is_fusible(const Graph& graph, const Node& node) {
  if (node.kind != ir::OpKind::Aten || node.provider != base::Provider::Native) return false;
  if (!ir::is_elementwise(node.overload.name()) || node.results.size() != 1) return false;
  if (graph.value(node.results[0]).type.shape.empty()) return false;
  size_t named = 0;
  for (const ir::Arg& arg : node.args) {
    named += std::holds_alternative<ir::OperandRef>(arg.value) ? 1 : 0;
    const bool in_type = node.overload.info()->cls == ir::AtenClass::Copy && is_about_memory(arg);
    if (!can_be_written(arg) && !in_type) return false;
  }
  // What converts a parameter may travel converted: gathers look for it.
  return named == node.operands.size() && named > 0 &&
         !std::ranges::all_of(node.operands, [&](ValueId operand) {
           const ValueId root = ir::view_root(graph, operand);
           return graph.node(graph.value(root).producer).kind == ir::OpKind::State;
         });
}

std::vector<ElementwiseGroup> elementwise_groups(const Graph& graph,
                                                 std::span<const NodeId> reductions,
                                                 const std::set<NodeId>& taken) {
  return Grouping(graph, reductions, Grouping::Of::Elements, taken).run();
}

std::vector<ElementwiseGroup> row_groups(const Graph& graph, std::span<const NodeId> reductions,
                                         const std::set<NodeId>& may_wait) {
  return Grouping(graph, reductions, Grouping::Of::Rows, may_wait).run();
}

void let_wait(Graph& graph, const ElementwiseGroup& group, const std::set<NodeId>& may_wait) {
  if (may_wait.empty()) return;
  const std::set<NodeId> members(group.members.begin(), group.members.end());
  std::set<ValueId> late;  // what comes behind the group
  for (const NodeId member : group.members) late.insert(graph.node(member).results[0]);
  std::vector<NodeId> moved;
  for (NodeId id = group.members[0]; id != group.members.back(); id = graph.next(id)) {
    const Node& node = graph.node(id);
    const bool moves = may_wait.contains(id) || (ir::is_plain_view(node) && !members.contains(id));
    const bool reads =
        std::ranges::any_of(node.operands, [&](ValueId operand) { return late.contains(operand); });
    if (!moves || !reads) continue;
    if (ir::is_plain_view(node) && is_read_by(graph, node, members)) continue;
    for (const ValueId result : node.results)
      if (result.valid()) late.insert(result);
    moved.push_back(id);
  }
  const NodeId behind = graph.next(group.members.back());
  for (const NodeId id : moved) graph.move_before(id, behind);
}

}  // namespace dc::passes
