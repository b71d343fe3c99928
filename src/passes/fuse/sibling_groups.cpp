#include "src/passes/fuse/sibling_groups.h"

#include <algorithm>
#include <map>
#include <set>

#include "src/base/expression.h"
#include "src/ir/effects.h"
#include "src/passes/fuse/fusible_reduction.h"
#include "src/passes/fuse/placed_parts.h"
#include "src/passes/fuse/value_readers.h"

namespace dc::passes {
namespace {

using base::Expression;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

class Siblings {
 public:
  Siblings(const Graph& graph, std::vector<ElementwiseGroup>& groups)
      : graph_(graph), groups_(groups) {
    position_.resize(graph.node_capacity());
    for (NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
      position_[id.index()] = static_cast<int>(kernels_before_.size());
      const int before = kernels_before_.empty() ? 0 : kernels_before_.back();
      const Node& node = graph.node(id);
      kernels_before_.push_back(before + (ir::runs(node) && !is_fusible(graph, node) ? 1 : 0));
    }
    for (size_t i = 0; i < groups.size(); ++i) number(i);
  }

  void run(const SiblingsPay& pays) {
    for (size_t later = 1; later < groups_.size(); ++later) {
      std::set<size_t> others = groups_before(later);
      for (auto next = others.begin(); next != others.end();) {
        const size_t earlier = *next++;
        if (!fit(earlier, later)) continue;
        ElementwiseGroup joined = both(earlier, later);
        if (!pays(joined, groups_[earlier], groups_[later])) continue;
        groups_[later] = std::move(joined);
        groups_[earlier].members.clear();
        number(later);
        others = groups_before(later);
        next = others.upper_bound(earlier);
      }
    }
    std::erase_if(groups_, [](const ElementwiseGroup& group) { return group.members.empty(); });
  }

 private:
  void number(size_t group) {
    for (const NodeId member : groups_[group].members)
      of_.insert_or_assign(member, static_cast<int>(group));
  }
  ElementwiseGroup both(size_t earlier, size_t later) const {
    ElementwiseGroup joined = groups_[earlier];
    const std::vector<NodeId>& more = groups_[later].members;
    joined.members.insert(joined.members.end(), more.begin(), more.end());
    std::ranges::sort(joined.members, {}, [this](NodeId id) { return position_[id.index()]; });
    return joined;
  }

  const ir::Shape& shape(size_t group) const {
    return graph_.value(graph_.node(groups_[group].members[0]).results[0]).type.shape;
  }
  ir::Phase phase(size_t group) const {
    return graph_.node(groups_[group].members[0]).origin.phase;
  }
  int last(size_t group) const { return position_[groups_[group].members.back().index()]; }
  bool is_in(NodeId id, size_t a, size_t b) const {
    const auto found = of_.find(id);
    return found != of_.end() &&
           (found->second == static_cast<int>(a) || found->second == static_cast<int>(b));
  }

  // Whether some members make parts, of another shape.
  bool has_parts(const ElementwiseGroup& group) const {
    return std::ranges::any_of(group.members, [this](NodeId member) {
      return !placed_parts(graph_, graph_.node(member)).empty();
    });
  }

  bool fit(size_t earlier, size_t later) const {
    const ElementwiseGroup &first = groups_[earlier], &second = groups_[later];
    if (first.members.empty() || first.reductions + second.reductions > 0) return false;
    if (shape(earlier) != shape(later) || phase(earlier) != phase(later)) return false;
    if (has_parts(first) || has_parts(second)) return false;
    if (first.members.size() + second.members.size() > Expression::kMostOperations) return false;
    const std::set<ValueId> read = operands(earlier), more = operands(later);
    const auto reads_other = [&](ValueId operand) {
      return is_in(graph_.value(ir::view_root(graph_, operand)).producer, earlier, earlier);
    };
    if (std::ranges::any_of(more, reads_other)) return false;
    for (const NodeId member : first.members) {
      if (!is_read_after(graph_.node(member).results[0], earlier, last(later))) return false;
    }
    return tensors(read, more, earlier, later) <= Expression::kMostTensors &&
           keeps_nothing_longer(read, last(earlier), last(later));
  }

  // What a group reads of others.
  std::set<ValueId> operands(size_t group) const {
    std::set<ValueId> found;
    for (const NodeId member : groups_[group].members) {
      for (const ValueId operand : graph_.node(member).operands) {
        if (!is_in(graph_.value(operand).producer, group, group)) found.insert(operand);
      }
    }
    return found;
  }
  // Those that read a value of the group's shape that it reads too.
  std::set<size_t> groups_before(size_t group) const {
    std::set<size_t> found;
    for (const ValueId operand : operands(group)) {
      if (graph_.value(operand).type.shape != shape(group)) continue;
      for (const ir::Use& use : graph_.value(operand).uses) {
        const auto reader = of_.find(use.node);
        if (reader != of_.end() && static_cast<size_t>(reader->second) < group)
          found.insert(static_cast<size_t>(reader->second));
      }
    }
    return found;
  }
  size_t tensors(std::set<ValueId> read, const std::set<ValueId>& more, size_t a, size_t b) const {
    read.insert(more.begin(), more.end());
    size_t count = read.size();
    for (const size_t group : {a, b}) {
      for (const NodeId member : groups_[group].members) {
        const bool is_result =
            is_read_outside(graph_, graph_.node(member).results[0],
                            [&](NodeId reader) { return is_in(reader, group, group); });
        count += is_result ? 1 : 0;
      }
    }
    return count;
  }

  // Whether all that read the value are of the group, or run after `position`.
  bool is_read_after(ValueId value, size_t group, int position) const {
    return std::ranges::all_of(graph_.value(value).uses, [&](const ir::Use& use) {
      const Node& reader = graph_.node(use.node);
      if (ir::is_plain_view(reader)) {
        return std::ranges::all_of(reader.results, [&](ValueId seen) {
          return !seen.valid() || is_read_after(seen, group, position);
        });
      }
      if (is_in(use.node, group, group)) return true;
      const auto other = of_.find(use.node);
      const int when = other == of_.end() ? position_[use.node.index()]
                                          : last(static_cast<size_t>(other->second));
      return when > position;
    });
  }

  // The earlier group would run at `to`, and what it reads live until then.
  bool keeps_nothing_longer(const std::set<ValueId>& read, int from, int to) const {
    if (kernels_before_[static_cast<size_t>(from)] == kernels_before_[static_cast<size_t>(to)])
      return true;
    const auto is_late = [&](NodeId reader) { return position_[reader.index()] >= to; };
    return std::ranges::all_of(read, [&](ValueId operand) {
      return lives_until(graph_, ir::view_root(graph_, operand), is_late);
    });
  }

  const Graph& graph_;
  std::vector<ElementwiseGroup>& groups_;
  std::vector<int> position_;        // by node
  std::vector<int> kernels_before_;  // by position; of kernels that no group can have
  std::map<NodeId, int> of_;         // the group of a node
};

}  // namespace

void join_siblings(const Graph& graph, std::vector<ElementwiseGroup>& groups,
                   const SiblingsPay& pays) {
  Siblings(graph, groups).run(pays);
}

}  // namespace dc::passes
