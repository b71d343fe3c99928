// fuse-output-layer: the loss without logits of all rows and classes.
//
// The product of the hidden states and the output layer's weight makes the largest value of a
// language model, tokens x vocabulary. fuse-loss left it the only one of that size: its gradient is
// in its place. One kernel makes the loss and both gradients from a part of the logits at a time,
// as soon as the hidden states are known: the loss's own gradient is, before the backward phase
// begins. Sums over parts are in f32, but in another order than those of one product, so bits
// differ; the parts follow from the sizes alone (base/logit_chunks.h).
#include <algorithm>
#include <optional>
#include <utility>

#include "src/base/logit_chunks.h"
#include "src/base/text.h"
#include "src/ir/builder.h"
#include "src/ir/effects.h"
#include "src/passes/fuse/product_node.h"
#include "src/passes/fuse/value_readers.h"
#include "src/passes/pass.h"

namespace dc::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::OpKind;
using ir::TensorType;
using ir::ValueId;

struct OutputLayerGraph {
  NodeId product, loss, backward, hidden_product, weight_product;
  ValueId hidden, weight, target, gradient;
  NodeId before;                // where the kernel comes
  std::vector<NodeId> earlier;  // makers of the loss's gradient that have to come before it
};

// Why an output layer stays as it is: a remark's code, and words.
struct Reason {
  std::string_view code;
  std::string text;
};

// [rows, columns] of what lies there as [columns, rows] without gaps.
bool is_transposed(const TensorType& type) {
  return type.shape.size() == 2 && type.strides == ir::Strides{1, type.shape[0]};
}

// Finds the output layer in front of a cross entropy whose gradients are known; otherwise says why
// it stays as it is.
class OutputLayerMatch {
 public:
  explicit OutputLayerMatch(const Graph& graph) : graph_(graph) {}

  std::optional<OutputLayerGraph> run(NodeId backward) {
    found_.backward = backward;
    if (finds_product() && finds_loss() && finds_gradients() && finds_operands() && finds_place())
      return found_;
    return std::nullopt;
  }
  const Reason& reason() const { return reason_; }

 private:
  const Node& node(NodeId id) const { return graph_.node(id); }
  const TensorType& type(ValueId value) const { return graph_.value(value).type; }
  NodeId producer(ValueId value) const { return graph_.value(value).producer; }
  ValueId root(ValueId value) const { return ir::view_root(graph_, value); }
  bool no(std::string_view code, std::string text) {
    reason_ = {code, std::move(text)};
    return false;
  }

  bool is_same(ValueId a, ValueId b) const {
    const TensorType &x = type(a), &y = type(b);
    return root(a) == root(b) && x.dtype == y.dtype && x.shape == y.shape &&
           x.strides == y.strides && x.offset == y.offset;
  }

  bool finds_product() {
    const ValueId logits = node(found_.backward).operands[0];
    found_.product = producer(root(logits));
    if (!is_product(node(found_.product)))
      return no("logits-of-no-product", "its logits come from " + name_of(node(found_.product)) +
                                            ", not from a native product of two matrices");
    const TensorType& made = type(node(found_.product).results[0]);
    return made.shape == type(logits).shape ||
           no("logits-in-other-rows", "the loss reads its logits in other rows");
  }

  static std::string name_of(const Node& node) {
    if (node.kind != OpKind::Aten) return std::string(ir::info(node.kind).text);
    return node.overload.text() + (node.provider == base::Provider::Aten ? " of libtorch" : "");
  }

  bool finds_loss() {
    const Node& backward = node(found_.backward);
    found_.target = backward.operands[1];
    found_.gradient = backward.operands[2];
    found_.loss = producer(backward.operands[3]);
    const Node& loss = node(found_.loss);
    const bool is_own = loss.kind == OpKind::CrossEntropy &&
                        is_same(loss.operands[0], backward.operands[0]) &&
                        loss.operands[1] == found_.target && *loss.args == *backward.args;
    if (!is_own) return no("loss-of-others", "its loss is not that of its gradient");
    const auto is_other = [this](NodeId each) {
      return each != found_.loss && each != found_.backward;
    };
    const ValueId logits = node(found_.product).results[0];
    return !(is_read(graph_, logits, is_other) || is_read(graph_, loss.results[2], is_other) ||
             is_read(graph_, loss.results[3], is_other)) ||
           no("logits-read-elsewhere", "something else reads its logits");
  }

  // Nodes that read the value, through views.
  void collect_readers(ValueId value, std::vector<NodeId>& readers) const {
    for (const ir::Use& use : graph_.value(value).uses) {
      const Node& reader = node(use.node);
      if (!ir::is_plain_view(reader)) {
        readers.push_back(use.node);
        continue;
      }
      for (const ValueId seen : reader.results) {
        if (seen.valid()) collect_readers(seen, readers);
      }
    }
  }

  bool finds_gradients() {
    const ValueId gradient = node(found_.backward).results[0];
    std::vector<NodeId> readers;
    collect_readers(gradient, readers);
    const bool are_products =
        readers.size() == 2 && is_product(node(readers[0])) && is_product(node(readers[1]));
    if (!are_products || is_read(graph_, gradient, [](NodeId) { return false; }))
      return no("gradient-read-elsewhere",
                "the gradient of its logits is not read by two products alone");
    if (is_transposed(type(node(readers[1]).operands[0]))) std::swap(readers[0], readers[1]);
    found_.weight_product = readers[0];
    found_.hidden_product = readers[1];
    const Node &weight = node(readers[0]), &hidden = node(readers[1]);
    const ValueId logits = node(found_.product).results[0];
    const bool reads_gradient =
        root(weight.operands[0]) == root(gradient) && root(hidden.operands[0]) == root(gradient) &&
        is_transposed(type(weight.operands[0])) && type(hidden.operands[0]).is_contiguous() &&
        type(hidden.operands[0]).shape == type(logits).shape;
    return reads_gradient ||
           no("gradient-read-otherwise",
              "the gradient of its logits is not read as a matrix and transposed");
  }

  bool finds_operands() {
    const Node &product = node(found_.product), &hidden = node(found_.hidden_product),
               &weight = node(found_.weight_product);
    found_.hidden = product.operands[0];
    const TensorType &of_weight = type(hidden.operands[1]), &transposed = type(product.operands[1]);
    const bool fits = type(found_.hidden).is_contiguous() && of_weight.is_contiguous() &&
                      is_transposed(transposed) && transposed.offset == of_weight.offset &&
                      root(product.operands[1]) == root(hidden.operands[1]) &&
                      is_same(weight.operands[1], found_.hidden) &&
                      type(hidden.results[0]).is_contiguous() &&
                      type(weight.results[0]).is_contiguous();
    // The weight before it was transposed.
    found_.weight = product.operands[1];
    while (ir::is_plain_view(node(producer(found_.weight))) && !is_weight(of_weight))
      found_.weight = node(producer(found_.weight)).operands[0];
    return (fits && is_weight(of_weight)) ||
           no("matrices-differ",
              "its gradients are products of other matrices than those that made its logits");
  }
  bool is_weight(const TensorType& wanted) const {
    const TensorType& is = type(found_.weight);
    return is.shape == wanted.shape && is.strides == wanted.strides && is.offset == wanted.offset;
  }

  // Before the first reader of the loss and its gradients. What makes the loss's gradient comes
  // before that too, if it can.
  bool finds_place() {
    position_.assign(graph_.node_capacity(), 0);
    int at = 0;
    for (NodeId id = graph_.first(); id.valid(); id = graph_.next(id)) position_[id.index()] = at++;
    found_.before = found_.backward;
    for (const size_t result : {0, 1}) {
      for (const ir::Use& use : graph_.value(node(found_.loss).results[result]).uses) {
        if (position(use.node) < position(found_.before)) found_.before = use.node;
      }
    }
    return comes_earlier(found_.gradient) ||
           no("gradient-of-loss", "the gradient of its loss depends on the loss");
  }
  int position(NodeId id) const { return position_[id.index()]; }

  bool comes_earlier(ValueId value) {
    const Node& maker = node(producer(value));
    if (maker.id == found_.loss || ir::writes_any(maker.kind)) return false;
    if (position(maker.id) < position(found_.before) ||
        std::ranges::count(found_.earlier, maker.id) > 0)
      return true;
    if (!std::ranges::all_of(maker.operands,
                             [this](ValueId operand) { return comes_earlier(operand); }))
      return false;
    found_.earlier.push_back(maker.id);  // behind its operands' makers
    return true;
  }

  const Graph& graph_;
  OutputLayerGraph found_;
  std::vector<int> position_;
  Reason reason_;
};

void erase_with_views(Graph& graph, NodeId id) {
  const auto operands = graph.node(id).operands;
  graph.erase(id);
  for (const ValueId operand : operands) erase_unread_views(graph, operand);
}

base::OutputLayer layer_of(const Graph& graph, const OutputLayerGraph& of) {
  const TensorType &hidden = graph.value(of.hidden).type, &weight = graph.value(of.weight).type;
  return {hidden.shape[0], weight.shape[0], hidden.shape[1], hidden.dtype};
}

void fuse_layer(Graph& graph, const OutputLayerGraph& of, const base::LogitChunk& chunk) {
  for (const NodeId id : of.earlier) graph.move_before(id, of.before);
  const ValueId old[] = {graph.node(of.loss).results[0], graph.node(of.loss).results[1],
                         graph.node(of.hidden_product).results[0],
                         graph.node(of.weight_product).results[0]};
  std::vector<ir::NewValue> results;
  for (const ValueId value : old)
    results.push_back({graph.value(value).name, graph.value(value).type});
  std::vector<ir::Arg> args = *graph.node(of.backward).args;
  args.emplace_back(ir::Attr::Rows, chunk.rows);
  args.emplace_back(ir::Attr::Classes, chunk.classes);
  ir::Origin origin = graph.node(of.product).origin;
  origin.phase = ir::Phase::Backward;
  const std::vector<ValueId> made =
      ir::Builder(graph, of.before, origin)
          .make_all(OpKind::LinearCrossEntropy, {of.hidden, of.weight, of.target, of.gradient},
                    std::move(results), std::move(args));
  for (size_t i = 0; i < made.size(); ++i) graph.replace_all_uses(old[i], made[i]);
  for (const NodeId id : {of.weight_product, of.hidden_product, of.backward, of.loss, of.product})
    erase_with_views(graph, id);
}

}  // namespace

base::Result<Change> fuse_output_layer(ir::Step& step, const PassContext& context) {
  Change change = Change::No;
  for (ir::Program& program : step.programs) {
    Graph& graph = program.graph;
    for (const NodeId id : graph.order()) {
      if (!graph.contains(id) || graph.node(id).kind != OpKind::CrossEntropyBackward) continue;
      OutputLayerMatch match(graph);
      const auto found = match.run(id);
      if (!found) {
        context.remarks.push_back(
            {"fuse-output-layer",
             std::string(match.reason().code),
             {},
             {},
             "a loss stays apart from its output layer: " + match.reason().text});
        continue;
      }
      const base::OutputLayer layer = layer_of(graph, *found);
      const base::LogitChunk chunk = base::choose_logit_chunk(layer);
      const int64_t parts =
          base::parts_of(layer.rows, chunk.rows) * base::parts_of(layer.classes, chunk.classes);
      fuse_layer(graph, *found, chunk);
      change = Change::Yes;
      const int64_t bytes = layer.rows * layer.classes * base::byte_size(layer.dtype);
      context.remarks.push_back({"fuse-output-layer",
                                 "output-layer-fused",
                                 {},
                                 {{"parts", parts}, {"logits_bytes", bytes}},
                                 "an output layer and its loss became one kernel, which has 1 of " +
                                     std::to_string(parts) + " parts of " +
                                     base::format_bytes(bytes) + " of logits at a time"});
    }
  }
  return change;
}

}  // namespace dc::passes
