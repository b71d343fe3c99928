#include "src/passes/fuse/early_readers.h"

#include <algorithm>
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

class EarlyReaders {
 public:
  explicit EarlyReaders(Graph& graph)
      : graph_(graph), place_(graph.node_capacity()), kernels_(graph.node_capacity()) {
    int place = 0, kernels = 0;
    for (NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
      const Node& node = graph.node(id);
      kernels += ir::runs(node) && !is_fusible(graph, node) ? 1 : 0;
      place_[id.index()] = place++;
      kernels_[id.index()] = kernels;
    }
  }

  bool run() {
    bool has_moved = false;
    for (NodeId id = graph_.first(); id.valid();) {
      const NodeId following = graph_.next(id), maker = earlier(graph_.node(id));
      if (maker.valid()) {
        graph_.move_before(id, graph_.next(maker));
        place_[id.index()] = place_[maker.index()];
        kernels_[id.index()] = kernels_[maker.index()];
        has_moved = true;
      }
      id = following;
    }
    return has_moved;
  }

 private:
  // The operator behind which the node is to be moved; invalid if there is none.
  NodeId earlier(const Node& node) const {
    if (!is_fusible(graph_, node)) return {};
    for (const ValueId operand : node.operands) {
      const Node& maker = graph_.node(graph_.value(operand).producer);
      if (kernels_[maker.id.index()] < kernels_[node.id.index()] && is_fusible(graph_, maker) &&
          maker.origin.phase == node.origin.phase && replaces(node, operand) &&
          others_come_before(node, operand, maker))
        return maker.id;
    }
    return {};
  }

  // Whether the node's value can live in place of the operand.
  bool replaces(const Node& node, ValueId operand) const {
    const auto &read = graph_.value(operand), &made = graph_.value(node.results[0]);
    return read.type.shape == made.type.shape && made.type.bytes() <= read.type.bytes() &&
           !is_output(graph_, operand) &&
           std::ranges::all_of(read.uses, [&](const ir::Use& use) { return use.node == node.id; });
  }

  bool others_come_before(const Node& node, ValueId operand, const Node& maker) const {
    return std::ranges::all_of(node.operands, [&](ValueId other) {
      const NodeId producer = graph_.value(other).producer;
      return other == operand || place_[producer.index()] < place_[maker.id.index()];
    });
  }

  Graph& graph_;
  std::vector<int> place_;    // by node; what was moved has that of what it was moved behind
  std::vector<int> kernels_;  // by node: those up to it that are no element-wise operators
};

}  // namespace

bool move_readers_early(Graph& graph) { return EarlyReaders(graph).run(); }

}  // namespace dc::passes
