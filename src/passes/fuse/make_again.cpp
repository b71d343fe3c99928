#include "src/passes/fuse/make_again.h"

#include <algorithm>
#include <utility>

#include "src/ir/builder.h"
#include "src/ir/effects.h"
#include "src/passes/fuse/elementwise_groups.h"
#include "src/passes/fuse/value_readers.h"

namespace dc::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

// More readers would each make the value.
constexpr size_t kMostReaders = 2;
// Kernels from values that are there to the one that is made again.
constexpr int kMostSteps = 3;

class Remaking {
 public:
  explicit Remaking(Graph& graph) : graph_(graph) {
    int next = 0;
    position_.resize(graph.node_capacity());
    for (const NodeId id : graph.order()) position_[id.index()] = next++;
  }

  std::vector<MadeAgain> run() {
    for (const NodeId id : graph_.order()) {
      const Node& node = graph_.node(id);
      if (node.origin.phase != ir::Phase::Forward || !is_fusible(graph_, node)) continue;
      const std::vector<ir::Use> readers = late_readers(node.results[0]);
      const bool can = !readers.empty() && std::ranges::all_of(readers, [&](const ir::Use& use) {
        return can_be_made(node, position_[use.node.index()], kMostSteps);
      });
      if (!can) continue;
      for (const ir::Use& use : readers) {
        const ValueId made = make_for(node, use.node, false);
        graph_.set_operand(use.node, use.operand, made);
      }
    }
    return std::move(made_);
  }

 private:
  // Those of the backward phase; none if the value is kept for one of them whatever happens here.
  std::vector<ir::Use> late_readers(ValueId value) const {
    std::vector<ir::Use> late;
    if (is_output(graph_, value)) return {};
    for (const ir::Use& use : graph_.value(value).uses) {
      const Node& reader = graph_.node(use.node);
      if (ir::is_plain_view(reader) && std::ranges::any_of(reader.results, [&](ValueId seen) {
            return seen.valid() && has_late_reader(seen);
          }))
        return {};
      if (reader.origin.phase == ir::Phase::Forward) continue;
      if (!is_fusible(graph_, reader)) return {};
      late.push_back(use);
    }
    return late.size() <= kMostReaders ? late : std::vector<ir::Use>();
  }
  bool has_late_reader(ValueId value) const {
    return is_read(graph_, value, [this](NodeId reader) {
      return graph_.node(reader).origin.phase != ir::Phase::Forward;
    });
  }

  // May still be taken back.
  bool is_made(NodeId id) const { return id.index() >= position_.size(); }

  // Whether something reads the operand's bytes at `position` or later.
  bool is_there(ValueId operand, int position) const {
    const ValueId root = ir::view_root(graph_, operand);
    const ir::OpKind maker = graph_.node(graph_.value(root).producer).kind;
    if (maker == ir::OpKind::State) return false;
    return maker == ir::OpKind::Input || is_read(graph_, root, [&](NodeId reader) {
             return !is_made(reader) && position_[reader.index()] >= position;
           });
  }

  // The kernel that makes an operand, which is no part of one tensor's view and has the shape of
  // the node's result, as one kernel's values have.
  const Node* step_before(const Node& node, ValueId operand) const {
    const Node& maker = graph_.node(graph_.value(operand).producer);
    const bool is_step =
        maker.origin.phase == ir::Phase::Forward && is_fusible(graph_, maker) &&
        graph_.value(operand).type.shape == graph_.value(node.results[0]).type.shape;
    return is_step ? &maker : nullptr;
  }

  bool can_be_made(const Node& node, int position, int steps) const {
    return steps > 0 && std::ranges::all_of(node.operands, [&](ValueId operand) {
             if (is_there(operand, position)) return true;
             const Node* step = step_before(node, operand);
             return step != nullptr && can_be_made(*step, position, steps - 1);
           });
  }

  // Right before the reader, and before that the steps to it. Returns its value.
  ValueId make_for(const Node& node, NodeId reader, bool is_step) {
    const int position = position_[reader.index()];
    std::vector<ValueId> operands = node.operands;
    for (ValueId& operand : operands) {
      if (!is_there(operand, position))
        operand = make_for(*step_before(node, operand), reader, true);
    }
    ir::Origin origin = graph_.node(reader).origin;
    origin.accumulates = false;
    const NodeId made = ir::Builder(graph_, reader, std::move(origin))
                            .repeat(node, std::move(operands), "again.")
                            .id;
    made_.push_back({made, node.results[0], is_step});
    return graph_.node(made).results[0];
  }

  Graph& graph_;
  std::vector<int> position_;  // by node; what is made has none
  std::vector<MadeAgain> made_;
};

}  // namespace

std::vector<MadeAgain> make_again(Graph& graph) { return Remaking(graph).run(); }

std::vector<MadeAgain> keep_originals(Graph& graph, const std::vector<MadeAgain>& again) {
  std::vector<MadeAgain> made;
  for (auto one = again.rbegin(); one != again.rend(); ++one) {
    const bool is_apart = graph.contains(one->node);
    if (is_apart && !one->is_step)
      graph.replace_all_uses(graph.node(one->node).results[0], one->original);
    if (is_apart && graph.value(graph.node(one->node).results[0]).uses.empty()) {
      graph.erase(one->node);
    } else {
      made.push_back(*one);
    }
  }
  return made;
}

}  // namespace dc::passes
