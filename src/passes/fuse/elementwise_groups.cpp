#include "src/passes/fuse/elementwise_groups.h"

#include <algorithm>
#include <set>

#include "src/base/expression.h"
#include "src/ir/effects.h"
#include "src/ir/native_ops.h"
#include "src/passes/fuse/value_readers.h"

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

class Grouping {
 public:
  explicit Grouping(const Graph& graph) : graph_(graph) {
    position_.resize(graph.node_capacity());
    of_.assign(graph.node_capacity(), -1);
    for (NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
      position_[id.index()] = static_cast<int>(kernels_before_.size());
      const Node& node = graph.node(id);
      const int before = kernels_before_.empty() ? 0 : kernels_before_.back();
      kernels_before_.push_back(before + (ir::runs(node) && !is_fusible(graph_, node) ? 1 : 0));
    }
  }

  std::vector<ElementwiseGroup> run() {
    for (NodeId id = graph_.first(); id.valid(); id = graph_.next(id)) {
      const Node& node = graph_.node(id);
      if (!is_fusible(graph_, node)) continue;
      const int own = static_cast<int>(groups_.size());
      groups_.push_back({{id}, position_[id.index()]});
      of_[id.index()] = own;
      for (const ValueId operand : node.operands) {
        const int other = of_[graph_.value(operand).producer.index()];
        if (other >= 0 && other != own && fit(other, own)) join(other, own);
      }
    }
    std::vector<ElementwiseGroup> found;
    for (Group& group : groups_) {
      if (group.members.size() < 2) continue;
      std::ranges::sort(group.members, {}, [this](NodeId id) { return position_[id.index()]; });
      found.push_back({std::move(group.members)});
    }
    return found;
  }

 private:
  struct Group {
    std::vector<NodeId> members;
    int position = 0;  // of the last member
  };

  const ir::Shape& shape(const Group& group) const {
    return graph_.value(graph_.node(group.members[0]).results[0]).type.shape;
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
    if (shape(first) != shape(second) || phase(first) != phase(second)) return false;
    if (first.members.size() + second.members.size() > Expression::kMostOperations) return false;
    for (const NodeId member : first.members) {
      const ValueId result = graph_.node(member).results[0];
      if (!is_read_late(result, earlier, own, second.position, false)) return false;
    }
    return tensors(earlier, own) <= Expression::kMostTensors && saves_memory(earlier, own);
  }

  // Whether all that read the value are of the two groups, directly, or come after `position`.
  bool is_read_late(ValueId value, int a, int b, int position, bool through_view) const {
    return std::ranges::all_of(graph_.value(value).uses, [&](const ir::Use& use) {
      const Node& reader = graph_.node(use.node);
      if (ir::is_plain_view(reader)) {
        return std::ranges::all_of(reader.results, [&](ValueId seen) {
          return !seen.valid() || is_read_late(seen, a, b, position, true);
        });
      }
      if (is_in(use.node, a, b)) return !through_view;
      const int group = of_[use.node.index()];
      const int when =
          group < 0 ? position_[use.node.index()] : groups_[static_cast<size_t>(group)].position;
      return when > position;
    });
  }

  bool is_read_outside(ValueId value, int a, int b) const {
    return is_output(graph_, value) ||
           std::ranges::any_of(graph_.value(value).uses,
                               [&](const ir::Use& use) { return !is_in(use.node, a, b); });
  }

  std::set<ValueId> operands(int a, int b) const {
    std::set<ValueId> found;
    for (const int group : {a, b}) {
      for (const NodeId member : groups_[static_cast<size_t>(group)].members) {
        for (const ValueId operand : graph_.node(member).operands) {
          if (!is_in(graph_.value(operand).producer, a, b)) found.insert(operand);
        }
      }
    }
    return found;
  }

  size_t tensors(int a, int b) const {
    size_t count = operands(a, b).size();
    for (const int group : {a, b}) {
      for (const NodeId member : groups_[static_cast<size_t>(group)].members)
        count += is_read_outside(graph_.node(member).results[0], a, b) ? 1 : 0;
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
      if (!lives_until(root, to)) longer += graph_.value(root).type.bytes().v;
    }
    for (const NodeId member : groups_[static_cast<size_t>(earlier)].members) {
      const ValueId result = graph_.node(member).results[0];
      const bool was_stored = is_read_outside(result, earlier, earlier);
      if (was_stored && !is_read_outside(result, earlier, own))
        gone += graph_.value(result).type.bytes().v;
    }
    return longer <= gone;
  }

  // Whether something reads it at `to` or later anyway.
  bool lives_until(ValueId root, int to) const {
    const ir::OpKind maker = graph_.node(graph_.value(root).producer).kind;
    return maker == ir::OpKind::State || maker == ir::OpKind::Input ||
           is_read(graph_, root, [&](NodeId reader) { return position_[reader.index()] >= to; });
  }

  void join(int earlier, int own) {
    Group& from = groups_[static_cast<size_t>(earlier)];
    Group& to = groups_[static_cast<size_t>(own)];
    for (const NodeId member : from.members) of_[member.index()] = own;
    to.members.insert(to.members.end(), from.members.begin(), from.members.end());
    from.members.clear();
  }

  const Graph& graph_;
  std::vector<int> position_;        // by node
  std::vector<int> kernels_before_;  // by position; of kernels that are no candidates
  std::vector<int> of_;              // the group of each node, or -1
  std::vector<Group> groups_;
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

std::vector<ElementwiseGroup> elementwise_groups(const Graph& graph) {
  return Grouping(graph).run();
}

}  // namespace dc::passes
