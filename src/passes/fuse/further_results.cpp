#include "src/passes/fuse/further_results.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "src/base/expression.h"
#include "src/ir/builder.h"
#include "src/ir/effects.h"
#include "src/passes/fuse/elementwise_groups.h"
#include "src/passes/fuse/fused_kernel.h"
#include "src/passes/fuse/placed_parts.h"
#include "src/passes/fuse/value_readers.h"

namespace dc::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

// Of what is moved behind a group for one value.
constexpr size_t kMostKernelsMoved = 4;

class FurtherResults {
 public:
  FurtherResults(Graph& graph, std::span<const MadeAgain> again,
                 std::vector<ElementwiseGroup> groups)
      : graph_(graph), groups_(std::move(groups)), position_(positions(graph)) {
    for (size_t i = 0; i < groups_.size(); ++i)
      for (const NodeId member : groups_[i].members) group_of_[member] = i;
    for (const MadeAgain& one : again) {
      if (one.is_late && group_of_.contains(one.node)) copies_[one.original].push_back(one.node);
    }
  }

  std::vector<MadeAgain> run(const std::set<ValueId>& but_not) {
    for (const NodeId id : graph_.order()) {
      if (!graph_.contains(id) || !is_forward(id) || !is_fusible(graph_, graph_.node(id))) continue;
      if (but_not.contains(graph_.node(id).results[0])) continue;
      const std::vector<Reading> late = late_readings(id);
      if (late.empty()) continue;
      for (const size_t group : groups_with_copies(id)) {
        const std::optional<Place> place = place_in(group, id, late);
        if (!place) continue;
        make(id, *place, late, group);
        break;
      }
    }
    return std::move(made_);
  }

 private:
  // A use of a value by a kernel of the backward phase, through views.
  struct Reading {
    ir::Use use;
    std::vector<NodeId> views;  // the first is of the value
  };
  struct Place {
    ir::ValueList operands;
    NodeId maker;               // of the last of those that the group makes
    std::vector<NodeId> moved;  // behind the group, in program order
  };

  bool is_forward(NodeId id) const { return graph_.node(id).origin.phase == ir::Phase::Forward; }
  int position(NodeId id) const { return position_[id.index()]; }

  // Nothing where another view than a plain one of one result, or an output, needs the value.
  std::vector<Reading> late_readings(NodeId id) const {
    std::vector<Reading> found;
    std::vector<NodeId> views;
    if (!add_readings(graph_.node(id).results[0], views, found)) found.clear();
    return found;
  }
  bool add_readings(ValueId value, std::vector<NodeId>& views, std::vector<Reading>& found) const {
    if (is_output(graph_, value)) return false;
    return std::ranges::all_of(graph_.value(value).uses, [&](const ir::Use& use) {
      const Node& reader = graph_.node(use.node);
      if (!ir::is_plain_view(reader)) {
        if (!is_forward(use.node)) found.push_back({use, views});
        return true;
      }
      if (reader.results.size() != 1) return false;
      views.push_back(use.node);
      const bool all = add_readings(reader.results[0], views, found);
      views.pop_back();
      return all;
    });
  }

  std::set<size_t> groups_with_copies(NodeId id) const {
    std::set<size_t> found;
    for (const ValueId operand : graph_.node(id).operands) {
      const auto copies = copies_.find(operand);
      if (copies == copies_.end()) continue;
      for (const NodeId copy : copies->second) found.insert(group_of_.at(copy));
    }
    return found;
  }

  std::optional<Place> place_in(size_t number, NodeId id, const std::vector<Reading>& late) const {
    const ElementwiseGroup& group = groups_[number];
    const Node& node = graph_.node(id);
    const ValueId value = node.results[0];
    if (!is_of_elements(group, shape_of(value))) return std::nullopt;
    if (std::ranges::any_of(late, [&](const Reading& one) { return is_in(number, one.use.node); }))
      return std::nullopt;
    std::optional<Place> place = operands_in(number, node);
    if (!place || !has_room(group, place->operands)) return std::nullopt;
    const int last = position(group.members.back());
    if (!find_moved(late, last, place->moved)) return std::nullopt;
    if (bytes_longer(place->moved, value, last) > bytes_of(value)) return std::nullopt;
    return place;
  }

  // Without reductions and parts in place, whose makers' values nothing else may read.
  bool is_of_elements(const ElementwiseGroup& group, const ir::Shape& shape) const {
    return group.reductions == 0 && std::ranges::all_of(group.members, [&](NodeId member) {
             const Node& node = graph_.node(member);
             return shape_of(node.results[0]) == shape && placed_parts(graph_, node).empty();
           });
  }

  std::optional<Place> operands_in(size_t number, const Node& node) const {
    Place place;
    for (const ValueId operand : node.operands) {
      if (const std::optional<NodeId> copy = copy_in(number, operand)) {
        if (!place.maker.valid() || position(*copy) > position(place.maker)) place.maker = *copy;
        place.operands.push_back(graph_.node(*copy).results[0]);
      } else if (is_there(number, operand)) {
        place.operands.push_back(operand);
      } else {
        return std::nullopt;
      }
    }
    if (!place.maker.valid()) return std::nullopt;
    return place;
  }
  // The group reads it, or something that comes later. (A parameter may have to be gathered.)
  bool is_there(size_t number, ValueId operand) const {
    const std::vector<NodeId>& members = groups_[number].members;
    const bool is_read = std::ranges::any_of(members, [&](NodeId member) {
      return std::ranges::count(graph_.node(member).operands, operand) != 0;
    });
    const ValueId root = ir::view_root(graph_, operand);
    if (is_read || graph_.node(graph_.value(root).producer).kind == ir::OpKind::State)
      return is_read;
    const int last = position(members.back());
    return lives_until(graph_, root, [&](NodeId reader) { return position(reader) > last; });
  }
  std::optional<NodeId> copy_in(size_t number, ValueId original) const {
    const auto copies = copies_.find(original);
    if (copies == copies_.end()) return std::nullopt;
    for (const NodeId copy : copies->second)
      if (is_in(number, copy)) return copy;
    return std::nullopt;
  }
  bool is_in(size_t number, NodeId id) const {
    const auto found = group_of_.find(id);
    return found != group_of_.end() && found->second == number;
  }

  // For one more operator on these, whose value is stored.
  bool has_room(const ElementwiseGroup& group, const ir::ValueList& more) const {
    std::set<ValueId> tensors;
    const auto add = [&](const ir::ValueList& operands) {
      for (const ValueId operand : operands) {
        if (std::ranges::count(group.members, graph_.value(operand).producer) == 0)
          tensors.insert(operand);
      }
    };
    for (const NodeId member : group.members) add(graph_.node(member).operands);
    add(more);
    return group.members.size() < base::Expression::kMostOperations &&
           tensors.size() + read_outside(graph_, group.members).size() <
               base::Expression::kMostTensors;
  }

  // Readers that come before the group's last member, and what reads theirs there. Whether all may
  // be moved: members of a group stay where they are.
  bool find_moved(const std::vector<Reading>& late, int last, std::vector<NodeId>& moved) const {
    std::vector<NodeId> open;
    open.reserve(late.size());
    for (const Reading& one : late) open.push_back(one.use.node);
    std::set<NodeId> seen;
    size_t kernels = 0;
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      if (position(id) > last || !seen.insert(id).second) continue;
      const Node& node = graph_.node(id);
      if (group_of_.contains(id) || node.kind != ir::OpKind::Aten) return false;
      if (!ir::is_plain_view(node) && ++kernels > kMostKernelsMoved) return false;
      for (size_t i = 0; i < node.operands.size(); ++i)
        if (ir::writes(node, i)) return false;
      for (const ValueId result : node.results) {
        if (!result.valid()) continue;
        for (const ir::Use& use : graph_.value(result).uses) open.push_back(use.node);
      }
    }
    moved.assign(seen.begin(), seen.end());
    std::ranges::sort(moved, {}, [this](NodeId id) { return position(id); });
    return true;
  }

  // What these read, and nothing else does at `last` or later.
  int64_t bytes_longer(const std::vector<NodeId>& moved, ValueId value, int last) const {
    std::set<ValueId> ending;
    for (const NodeId id : moved) {
      for (const ValueId operand : graph_.node(id).operands) {
        const ValueId root = ir::view_root(graph_, operand);
        if (root == value || std::ranges::count(moved, graph_.value(root).producer) != 0) continue;
        const auto is_late = [&](NodeId reader) { return position(reader) >= last; };
        if (!lives_until(graph_, root, is_late)) ending.insert(root);
      }
    }
    int64_t bytes = 0;
    for (const ValueId root : ending) bytes += bytes_of(root);
    return bytes;
  }

  void make(NodeId id, const Place& place, const std::vector<Reading>& late, size_t number) {
    ElementwiseGroup& group = groups_[number];
    const ValueId original = graph_.node(id).results[0];
    const int64_t bytes = bytes_of(original);
    ir::Origin origin = graph_.node(group.members.back()).origin;
    origin.accumulates = false;
    const NodeId copy = ir::Builder(graph_, graph_.next(place.maker), origin)
                            .repeat(graph_.node(id), place.operands, "again.")
                            .id;
    const auto maker = std::ranges::find(group.members, place.maker);
    group.members.insert(maker + 1, copy);
    group_of_[copy] = number;
    const NodeId behind = graph_.next(group.members.back());
    std::map<NodeId, ValueId> views;  // by the original's
    for (const Reading& one : late) {
      ValueId seen = graph_.node(copy).results[0];
      for (const NodeId view : one.views) {
        const auto [known, is_new] = views.emplace(view, ValueId());
        if (is_new) {
          known->second = ir::Builder(graph_, behind, origin)
                              .repeat(graph_.node(view), {seen}, "again.")
                              .results[0];
        }
        seen = known->second;
      }
      graph_.set_operand(one.use.node, one.use.operand, seen);
    }
    for (const NodeId moved : place.moved) graph_.move_before(moved, behind);
    for (const Reading& one : late) {
      if (!one.views.empty() && graph_.contains(one.views.back()))
        erase_unread_views(graph_, graph_.node(one.views.back()).results[0]);
    }
    erase_unread_operators(graph_, id);
    position_ = positions(graph_);
    made_.push_back({copy, original, true, bytes});
  }

  const ir::Shape& shape_of(ValueId value) const { return graph_.value(value).type.shape; }
  int64_t bytes_of(ValueId value) const { return graph_.value(value).type.bytes().v; }

  Graph& graph_;
  std::vector<ElementwiseGroup> groups_;
  std::map<NodeId, size_t> group_of_;
  std::map<ValueId, std::vector<NodeId>> copies_;  // by original, those that groups have
  std::vector<int> position_;                      // by node
  std::vector<MadeAgain> made_;
};

}  // namespace

std::vector<MadeAgain> make_further_results(Graph& graph, std::span<const MadeAgain> again,
                                            std::vector<ElementwiseGroup> groups,
                                            const std::set<ValueId>& but_not) {
  return FurtherResults(graph, again, std::move(groups)).run(but_not);
}

}  // namespace dc::passes
