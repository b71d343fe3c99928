#include "src/passes/fuse/move_to_operands.h"

#include <set>
#include <vector>

#include "src/ir/effects.h"
#include "src/passes/fuse/elementwise_groups.h"
#include "src/passes/fuse/value_readers.h"

namespace dc::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

class OperatorOrder {
 public:
  explicit OperatorOrder(Graph& graph) : graph_(graph), place_(graph.node_capacity()) {
    for (NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
      place_[id.index()] = {runs_.size(), 0};
      runs_.push_back({id});
    }
  }

  void run() {
    for (size_t i = 0; i < runs_.size(); ++i) {
      const NodeId id = runs_[i][0];
      const Node& node = graph_.node(id);
      if (!is_fusible(graph_, node)) continue;
      const NodeId last = last_operand(node);
      if (!last.valid() || !joins(node, last) || !saves_memory(node)) continue;
      std::vector<NodeId>& run = runs_[place_[last.index()].run];
      graph_.move_before(id, graph_.next(run.back()));
      place_[id.index()] = {place_[last.index()].run, run.size()};
      run.push_back(id);
    }
  }

 private:
  NodeId last_operand(const Node& node) const {
    NodeId last;
    for (const ValueId operand : node.operands) {
      const NodeId maker = graph_.value(operand).producer;
      if (!last.valid() || place_[maker.index()] > place_[last.index()]) last = maker;
    }
    return last;
  }

  // Whether an operator of the same kind of group makes the operand.
  bool joins(const Node& node, NodeId maker) const {
    const Node& made = graph_.node(maker);
    return is_fusible(graph_, made) && made.origin.phase == node.origin.phase &&
           graph_.value(made.results[0]).type.shape == graph_.value(node.results[0]).type.shape;
  }

  bool saves_memory(const Node& node) const {
    std::set<ValueId> ending;
    for (const ValueId operand : node.operands) {
      const ValueId root = ir::view_root(graph_, operand);
      const auto is_later = [&](NodeId reader) {
        return reader != node.id && place_[reader.index()] > place_[node.id.index()];
      };
      if (!lives_until(graph_, root, is_later)) ending.insert(root);
    }
    int64_t bytes = 0;
    for (const ValueId root : ending) bytes += graph_.value(root).type.bytes().v;
    return graph_.value(node.results[0]).type.bytes().v <= bytes;
  }

  // A run: a node in its place, then those that were moved behind it.
  struct Place {
    size_t run = 0, index = 0;
    auto operator<=>(const Place&) const = default;
  };
  Graph& graph_;
  std::vector<std::vector<NodeId>> runs_;  // in program order; a node that was moved is in two
  std::vector<Place> place_;               // by node
};

}  // namespace

void move_to_operands(Graph& graph) { OperatorOrder(graph).run(); }

}  // namespace dc::passes
