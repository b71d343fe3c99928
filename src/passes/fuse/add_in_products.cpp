#include "src/passes/fuse/add_in_products.h"

#include <optional>
#include <utility>
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
using ir::OpKind;
using ir::TensorType;
using ir::ValueId;

// The same elements in the same order, whatever their dims.
bool is_in_order(const TensorType& type, const TensorType& of) {
  return type.dtype == of.dtype && type.numel() == of.numel() && type.offset == 0 &&
         type.is_contiguous();
}

bool is_addition(const Node& node) {
  if (node.kind != OpKind::Aten || node.provider != base::Provider::Native ||
      node.overload != "aten.add.Tensor" || node.operands.size() != 2)
    return false;
  const ir::Arg* alpha = node.find_arg("alpha");
  return alpha == nullptr || alpha->value == ir::Arg::Value(int64_t{1}) ||
         alpha->value == ir::Arg::Value(1.0);
}

// A product, what is added to it, and the views between.
struct Sum {
  NodeId product, addition;
  ValueId added;              // in order; made before the product
  bool in_place = false;      // its bytes may become the sum
  std::vector<NodeId> views;  // of the product, the last one first
};

class SumFinder {
 public:
  SumFinder(const Graph& graph, const std::vector<int>& position)
      : graph_(graph), position_(position) {}

  // Of two products the later one adds.
  std::optional<Sum> find(NodeId id) const {
    const Node& node = graph_.node(id);
    if (!is_addition(node) || is_output_through_views(node.results[0])) return std::nullopt;
    std::optional<Sum> best;
    for (const size_t side : {0, 1}) {
      std::optional<Sum> sum = with_product(node, side);
      if (sum && (!best || place(sum->product) > place(best->product))) best = std::move(sum);
    }
    return best;
  }

 private:
  const TensorType& type(ValueId value) const { return graph_.value(value).type; }
  const Node& maker(ValueId value) const { return graph_.node(graph_.value(value).producer); }
  int place(NodeId id) const { return position_[id.index()]; }
  bool is_output_through_views(ValueId value) const {
    return is_read(graph_, value, [](NodeId) { return false; });
  }

  std::optional<Sum> with_product(const Node& addition, size_t side) const {
    Sum sum;
    sum.addition = addition.id;
    const TensorType& result = type(addition.results[0]);
    ValueId value = addition.operands[side];
    while (is_read_once(graph_, value) && is_in_order(type(value), result)) {
      const Node& made = maker(value);
      if (is_product(made)) {
        sum.product = made.id;
        return made.origin.phase == addition.origin.phase &&
                       finds_added(addition.operands[1 - side], type(value), sum)
                   ? std::optional(sum)
                   : std::nullopt;
      }
      if (!ir::is_plain_view(made) || made.operands.size() != 1) break;
      sum.views.push_back(made.id);
      value = made.operands[0];
    }
    return std::nullopt;
  }

  // The value, or the first of those it is a view of that is made before the product; better one
  // of the product's shape.
  bool finds_added(ValueId value, const TensorType& of_product, Sum& sum) const {
    bool is_once = true;
    while (is_in_order(type(value), of_product)) {
      is_once = is_once && is_read_once(graph_, value);
      const Node& made = maker(value);
      const bool is_known = place(made.id) < place(sum.product);
      const bool has_shape = type(value).shape == of_product.shape;
      if (is_known && (has_shape || !sum.added.valid())) sum.added = value;
      if ((is_known && has_shape) || !ir::is_plain_view(made) || made.operands.size() != 1) break;
      value = made.operands[0];
    }
    if (!sum.added.valid()) return false;
    sum.in_place = is_once && type(sum.added) == of_product && owns_bytes(maker(sum.added)) &&
                   graph_.node(sum.addition).origin.phase == ir::Phase::Backward;
    return true;
  }

  // Whether what the node makes is a value of the backward phase and no view of another.
  static bool owns_bytes(const Node& made) {
    return made.origin.phase == ir::Phase::Backward &&
           ((made.kind == OpKind::Aten && !ir::is_view(made)) || made.kind == OpKind::AddProduct);
  }

  const Graph& graph_;
  const std::vector<int>& position_;
};

ValueId in_shape(Graph& graph, ir::Builder build, ValueId value, const ir::Shape& shape,
                 const std::string& name) {
  const TensorType& is = graph.value(value).type;
  if (is.shape == shape) return value;
  TensorType type = ir::contiguous(is.dtype, shape, is.sharding);
  return build.make_aten("aten.view.default", {value}, {name, std::move(type)},
                         {{"self", ir::OperandRef{0}}, {"size", shape}});
}

// The product that adds, before the one that does not.
NodeId make_product(Graph& graph, const Sum& sum) {
  const Node& product = graph.node(sum.product);
  const ValueId left = product.operands[0], right = product.operands[1],
                result = product.results[0];
  ir::Builder build(graph, sum.product, product.origin);
  const TensorType type = graph.value(result).type;
  const std::string name = *graph.value(graph.node(sum.addition).results[0]).name;
  if (sum.in_place)
    return graph.value(build.make_in_place(OpKind::AddProduct, {sum.added, left, right}, name))
        .producer;
  const ValueId added =
      in_shape(graph, build, sum.added, type.shape, *graph.value(sum.added).name + ".rows");
  const ValueId made = build.make_aten(
      "aten.addmm.default", {added, left, right}, {name, type},
      {{"self", ir::OperandRef{0}}, {"mat1", ir::OperandRef{1}}, {"mat2", ir::OperandRef{2}}});
  const NodeId id = graph.value(made).producer;
  graph.set_provider(id, base::Provider::Native);
  return id;
}

bool add_in_product(Graph& graph, const Sum& sum, const PassContext& context) {
  const NodeId made = make_product(graph, sum);
  const NodeId apart[] = {sum.product, sum.addition};
  if (!fused_pays(graph, graph.node(made), apart, context)) {
    const ValueId added = graph.node(made).operands[0];
    graph.erase(made);
    erase_unread_views(graph, added);
    return false;
  }
  const ValueId old = graph.node(sum.addition).results[0];
  const ir::Shape shape = graph.value(old).type.shape;
  const ir::Builder build(graph, sum.product, graph.node(sum.addition).origin);
  const ValueId result =
      in_shape(graph, build, graph.node(made).results[0], shape, *graph.value(old).name + ".view");
  graph.replace_all_uses(old, result);
  const auto operands = graph.node(sum.addition).operands;
  graph.erase(sum.addition);
  for (const NodeId view : sum.views) graph.erase(view);
  graph.erase(sum.product);
  for (const ValueId operand : operands) erase_unread_views(graph, operand);
  return true;
}

}  // namespace

int64_t add_in_products(Graph& graph, const PassContext& context) {
  int64_t count = 0;
  std::vector<int> position = positions(graph);
  for (const NodeId id : graph.order()) {
    if (!graph.contains(id)) continue;
    const std::optional<Sum> sum = SumFinder(graph, position).find(id);
    if (!sum || !add_in_product(graph, *sum, context)) continue;
    position = positions(graph);
    ++count;
  }
  return count;
}

}  // namespace dc::passes
