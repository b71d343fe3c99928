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
        return std::ranges::all_of(node.operands, [&](ValueId operand) {
          return is_there(operand, position_[use.node.index()]);
        });
      });
      if (!can) continue;
      for (const ir::Use& use : readers) make_for(id, use);
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

  void make_for(NodeId id, const ir::Use& use) {
    const Node& node = graph_.node(id);
    ir::Origin origin = graph_.node(use.node).origin;
    origin.accumulates = false;
    const NodeId made =
        ir::Builder(graph_, use.node, std::move(origin)).repeat(node, node.operands, "again.").id;
    made_.push_back({made, graph_.node(id).results[0]});
    graph_.set_operand(use.node, use.operand, graph_.node(made).results[0]);
  }

  Graph& graph_;
  std::vector<int> position_;  // by node; what is made has none
  std::vector<MadeAgain> made_;
};

}  // namespace

std::vector<MadeAgain> make_again(Graph& graph) { return Remaking(graph).run(); }

void keep_original(Graph& graph, const MadeAgain& again) {
  graph.replace_all_uses(graph.node(again.node).results[0], again.original);
  graph.erase(again.node);
}

}  // namespace dc::passes
