#include "src/passes/fuse/pair_products.h"

#include <algorithm>
#include <string>
#include <vector>

#include "src/ir/builder.h"
#include "src/ir/effects.h"
#include "src/passes/fuse/product_node.h"
#include "src/passes/fuse/value_readers.h"

namespace dc::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::TensorType;
using ir::ValueId;

// "model.layers.0.mlp" of "model.layers.0.mlp.up_proj".
std::string_view parent_of(std::string_view module) {
  return module.substr(0, std::min(module.rfind('.'), module.size()));
}

bool are_siblings(const Node& a, const Node& b) {
  return a.origin.phase == b.origin.phase &&
         parent_of(*a.origin.module) == parent_of(*b.origin.module);
}

class PairFinder {
 public:
  PairFinder(const Graph& graph, const std::vector<int>& position)
      : graph_(graph), position_(position) {}

  // Whether two products of siblings are a pair.
  bool fit(const Node& earlier, const Node& later) const {
    return have_same_types(earlier, later) && (is_same(earlier.operands[0], later.operands[0]) ||
                                               is_same(earlier.operands[1], later.operands[1]));
  }

  // Whether the earlier one may stand where the later one does.
  bool may_wait(const Node& earlier, const Node& later) const {
    const auto is_early = [&](NodeId reader) { return place(reader) <= place(later.id); };
    return !is_read_by(earlier.results[0], is_early) && !is_changed(earlier, earlier, later);
  }
  // Whether the later one may stand where the earlier one does.
  bool may_come_forward(const Node& earlier, const Node& later) const {
    const auto is_known = [&](ValueId operand) {
      const ValueId last = made_before(operand, earlier.id);
      return place(graph_.value(last).producer) < place(earlier.id);
    };
    return std::ranges::all_of(later.operands, is_known) && !is_changed(later, earlier, later);
  }

 private:
  const TensorType& type(ValueId value) const { return graph_.value(value).type; }
  int place(NodeId id) const { return position_[id.index()]; }

  static bool is_alike(const TensorType& a, const TensorType& b) {
    return a.dtype == b.dtype && a.shape == b.shape && a.strides == b.strides;
  }
  bool have_same_types(const Node& a, const Node& b) const {
    return is_alike(type(a.operands[0]), type(b.operands[0])) &&
           is_alike(type(a.operands[1]), type(b.operands[1])) &&
           is_alike(type(a.results[0]), type(b.results[0]));
  }
  bool is_same(ValueId a, ValueId b) const {
    return a == b || (ir::view_root(graph_, a) == ir::view_root(graph_, b) &&
                      is_alike(type(a), type(b)) && type(a).offset == type(b).offset);
  }

  // What the value is a view of, as far back as `node` needs it to be made before.
  ValueId made_before(ValueId value, NodeId node) const {
    while (place(graph_.value(value).producer) > place(node)) {
      const Node& maker = graph_.node(graph_.value(value).producer);
      if (!ir::is_plain_view(maker)) break;
      value = maker.operands[0];
    }
    return value;
  }

  // Whether a node between the two changes what the product reads.
  bool is_changed(const Node& product, const Node& earlier, const Node& later) const {
    for (NodeId id = graph_.next(earlier.id); id != later.id; id = graph_.next(id)) {
      const Node& between = graph_.node(id);
      for (size_t i = 0; i < between.operands.size(); ++i) {
        if (!ir::writes(between, i)) continue;
        const ValueId root = ir::view_root(graph_, between.operands[i]);
        if (std::ranges::any_of(product.operands, [&](ValueId operand) {
              return ir::view_root(graph_, operand) == root;
            }))
          return true;
      }
    }
    return false;
  }

  template <typename Reads>
  bool is_read_by(ValueId value, const Reads& reads) const {
    return std::ranges::any_of(graph_.value(value).uses, [&](const ir::Use& use) {
      const Node& reader = graph_.node(use.node);
      if (!ir::is_plain_view(reader)) return reads(use.node);
      return std::ranges::any_of(
          reader.results, [&](ValueId seen) { return seen.valid() && is_read_by(seen, reads); });
    });
  }

  const Graph& graph_;
  const std::vector<int>& position_;
};

// Views behind `earlier` that the value is made through, the last one first.
std::vector<NodeId> views_behind(const Graph& graph, ValueId value, NodeId earlier,
                                 const std::vector<int>& position) {
  std::vector<NodeId> views;
  for (NodeId id = graph.value(value).producer; position[id.index()] > position[earlier.index()];
       id = graph.value(graph.node(id).operands[0]).producer)
    views.push_back(id);
  return views;
}

// At the place of the later one if that may be.
bool pair(Graph& graph, NodeId earlier, NodeId later, bool waits, const std::vector<int>& position,
          const PassContext& context) {
  const NodeId apart[] = {earlier, later};
  ir::ValueList operands;
  std::vector<ir::NewValue> results;
  std::vector<ValueId> old;
  for (const NodeId id : apart) {
    const Node& node = graph.node(id);
    operands.push_back(node.operands[0]);
    operands.push_back(node.operands[1]);
    old.push_back(node.results[0]);
    results.push_back({graph.value(old.back()).name, graph.value(old.back()).type});
  }
  ir::Origin origin = graph.node(later).origin;
  origin.module = std::string(parent_of(*origin.module));
  const NodeId place = waits ? later : earlier;
  const std::vector<ValueId> made =
      ir::Builder(graph, place, origin)
          .make_all(ir::OpKind::TwoProducts, operands, std::move(results));
  const NodeId both = graph.value(made[0]).producer;
  if (!fused_pays(graph, graph.node(both), apart, context)) {
    graph.erase(both);
    return false;
  }
  if (waits) {
    std::vector<NodeId> views;
    collect_views(graph, old[0], position, position[later.index()], views);
    for (const NodeId view : views) graph.move_before(view, later);
  } else {
    for (const ValueId operand : graph.node(later).operands) {
      NodeId before = both;
      for (const NodeId view : views_behind(graph, operand, earlier, position)) {
        graph.move_before(view, before);
        before = view;
      }
    }
  }
  for (size_t i = 0; i < old.size(); ++i) graph.replace_all_uses(old[i], made[i]);
  for (const NodeId id : apart) graph.erase(id);
  return true;
}

}  // namespace

int64_t pair_products(Graph& graph, const PassContext& context) {
  int64_t count = 0;
  std::vector<int> position = positions(graph);
  const PairFinder finder(graph, position);
  std::vector<NodeId> waiting;  // of one module's children, in one phase
  for (const NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    if (!is_product(node)) continue;
    if (!waiting.empty() && !are_siblings(graph.node(waiting[0]), node)) waiting.clear();
    bool waits = false;
    const auto found = std::ranges::find_if(waiting, [&](NodeId other) {
      const Node& earlier = graph.node(other);
      if (!finder.fit(earlier, node)) return false;
      waits = finder.may_wait(earlier, node);
      return waits || finder.may_come_forward(earlier, node);
    });
    if (found != waiting.end() && pair(graph, *found, id, waits, position, context)) {
      waiting.erase(found);
      position = positions(graph);
      ++count;
    } else {
      waiting.push_back(id);
    }
  }
  return count;
}

}  // namespace dc::passes
