// fuse-loss: cross entropy without log-probabilities.
//
// What autograd makes of it is log_softmax and nll_loss, then the gradient of nll_loss, as large as
// the logits and 0 but for one number in each row, then the gradient of log_softmax from both that
// and the log-probabilities. One kernel gives the loss and two numbers of each row, and another the
// gradient of the logits in their place. 16-bit logits and gradients are read and written as they
// are, without their copies in f32. The bits are the same.
#include <algorithm>
#include <optional>
#include <utility>

#include "src/base/text.h"
#include "src/ir/builder.h"
#include "src/ir/effects.h"
#include "src/passes/fuse/value_readers.h"
#include "src/passes/pass.h"

namespace dc::passes {
namespace {

using base::DType;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::TensorType;
using ir::ValueId;

struct CrossEntropyGraph {
  NodeId log_softmax, loss, loss_backward, backward;
  NodeId cast, gradient_cast;  // of 16-bit logits to f32, and back; both or none
  ValueId logits, target, gradient;
  int64_t reduction = 1, ignored = -100;
};

bool is_native(const Node& node, std::string_view overload) {
  return node.kind == ir::OpKind::Aten && node.provider == base::Provider::Native &&
         node.overload == overload;
}

// An invalid id where the node does not read a tensor by this name.
ValueId read_by_name(const Node& node, std::string_view name) {
  const ir::Arg* arg = node.find_arg(name);
  const auto* operand = arg == nullptr ? nullptr : std::get_if<ir::OperandRef>(&arg->value);
  return operand == nullptr ? ValueId{} : node.operands[static_cast<size_t>(operand->index)];
}

int64_t integer_by_name(const Node& node, std::string_view name, int64_t otherwise) {
  const ir::Arg* arg = node.find_arg(name);
  const auto* number = arg == nullptr ? nullptr : std::get_if<int64_t>(&arg->value);
  return number == nullptr ? otherwise : *number;
}

// All elements of what it is a view of lie one behind the other, if it has as many.
bool is_plain(const TensorType& type) { return type.is_contiguous() && type.offset == 0; }

bool is_last_dim(const Node& node) {
  const int64_t dim = integer_by_name(node, "dim", 0);
  return dim == 1 || dim == -1;  // of two
}

// Finds the graph that ends in the gradient of a log_softmax.
class CrossEntropyMatch {
 public:
  explicit CrossEntropyMatch(const Graph& graph) : graph_(graph) {}

  std::optional<CrossEntropyGraph> run(NodeId backward) {
    found_.backward = backward;
    const bool found = find_nodes() && they_agree() && (reads_cast_logits() || reads_logits());
    return found ? std::optional(found_) : std::nullopt;
  }

 private:
  const Node& node(NodeId id) const { return graph_.node(id); }
  const TensorType& type(ValueId value) const { return graph_.value(value).type; }
  NodeId producer(ValueId value) const {
    return value.valid() ? graph_.value(value).producer : NodeId{};
  }
  bool has_one_use(ValueId value) const {
    return graph_.value(value).uses.size() == 1 && !is_output(graph_, value);
  }
  ValueId log_probabilities() const { return node(found_.log_softmax).results[0]; }

  bool find_nodes() {
    const Node& backward = node(found_.backward);
    if (!is_native(backward, "aten._log_softmax_backward_data.default") || !is_last_dim(backward))
      return false;
    const ValueId y = read_by_name(backward, "output"), g = read_by_name(backward, "grad_output");
    if (!y.valid() || !g.valid()) return false;
    found_.log_softmax = producer(y);
    found_.loss_backward = producer(g);
    if (!is_native(node(found_.log_softmax), "aten._log_softmax.default") ||
        !is_last_dim(node(found_.log_softmax)) || !has_one_use(g) ||
        !is_native(node(found_.loss_backward), "aten.nll_loss_backward.default"))
      return false;
    found_.loss = producer(read_by_name(node(found_.loss_backward), "total_weight"));
    return found_.loss.valid() && is_native(node(found_.loss), "aten.nll_loss_forward.default") &&
           nobody_else_reads(y);
  }

  bool nobody_else_reads(ValueId y) const {
    return !is_output(graph_, y) &&
           std::ranges::all_of(graph_.value(y).uses, [this](const ir::Use& use) {
             return use.node == found_.loss || use.node == found_.loss_backward ||
                    use.node == found_.backward;
           });
  }

  // Both directions of nll_loss are of the same log-probabilities, classes and kind.
  bool they_agree() {
    const Node &loss = node(found_.loss), &backward = node(found_.loss_backward);
    const ValueId y = log_probabilities();
    found_.target = read_by_name(loss, "target");
    found_.gradient = read_by_name(backward, "grad_output");
    found_.reduction = integer_by_name(loss, "reduction", 1);
    found_.ignored = integer_by_name(loss, "ignore_index", -100);
    const bool same = read_by_name(loss, "self") == y && read_by_name(backward, "self") == y &&
                      read_by_name(backward, "target") == found_.target &&
                      integer_by_name(backward, "reduction", 1) == found_.reduction &&
                      integer_by_name(backward, "ignore_index", -100) == found_.ignored &&
                      loss.results.size() == 2 && loss.results[0].valid() &&
                      read_by_name(backward, "total_weight") == loss.results[1];
    if (!same || read_by_name(loss, "weight").valid() || read_by_name(backward, "weight").valid() ||
        (found_.reduction != 1 && found_.reduction != 2) || !found_.target.valid() ||
        !found_.gradient.valid())
      return false;
    return types_fit(loss);
  }

  bool types_fit(const Node& loss) const {
    const auto is_number = [this](ValueId value) {
      return type(value).dtype == DType::F32 && type(value).shape.empty();
    };
    const TensorType &y = type(log_probabilities()), &targets = type(found_.target);
    return y.dtype == DType::F32 && y.shape.size() == 2 && y.numel() > 0 && is_plain(y) &&
           targets.dtype == DType::I64 && targets.shape == ir::Shape{y.shape[0]} &&
           targets.is_contiguous() && is_number(found_.gradient) && is_number(loss.results[0]) &&
           is_number(loss.results[1]) && type(node(found_.backward).results[0]).dtype == DType::F32;
  }

  // Whether the bytes are a kernel's result that the node alone reads, so that they may change.
  bool is_its_own(ValueId value, NodeId reader) const {
    const ValueId root = ir::view_root(graph_, value);
    const Node& maker = node(producer(root));
    return ir::is_model_op(maker.kind) && ir::runs(maker) &&
           !is_read(graph_, root, [reader](NodeId each) { return each != reader; });
  }

  bool reads_logits() {
    found_.cast = found_.gradient_cast = {};
    found_.logits = read_by_name(node(found_.log_softmax), "self");
    return found_.logits.valid() && is_plain(type(found_.logits)) &&
           type(found_.logits) == type(node(found_.backward).results[0]) &&
           is_its_own(found_.logits, found_.log_softmax);
  }

  // 16-bit logits, of which only log_softmax reads a copy in f32, and whose gradient becomes
  // 16-bit.
  bool reads_cast_logits() {
    const ValueId x = read_by_name(node(found_.log_softmax), "self");
    if (!x.valid() || !is_plain(type(x))) return false;
    const ValueId wide = ir::view_root(graph_, x);
    found_.cast = producer(wide);
    const Node& cast = node(found_.cast);
    if (!is_native(cast, "aten._to_copy.default") || !is_its_own(x, found_.log_softmax))
      return false;
    found_.logits = cast.operands[0];
    const TensorType& narrow = type(found_.logits);
    return (narrow.dtype == DType::BF16 || narrow.dtype == DType::F16) && is_plain(narrow) &&
           type(wide).numel() == type(x).numel() && type(wide).is_contiguous() &&
           is_its_own(found_.logits, found_.cast) && finds_gradient_cast(narrow);
  }

  bool finds_gradient_cast(const TensorType& narrow) {
    ValueId value = node(found_.backward).results[0];
    while (has_one_use(value) && is_plain(type(value))) {
      const Node& reader = node(graph_.value(value).uses[0].node);
      if (!ir::is_plain_view(reader) || reader.results.size() != 1) {
        const TensorType& made = type(reader.results.empty() ? value : reader.results[0]);
        found_.gradient_cast = reader.id;
        return is_native(reader, "aten._to_copy.default") && is_plain(made) &&
               made.dtype == narrow.dtype && made.sharding == narrow.sharding &&
               made.numel() == narrow.numel();
      }
      value = reader.results[0];
    }
    return false;
  }

  const Graph& graph_;
  CrossEntropyGraph found_;
};

// The value in another shape.
ValueId as_shape(Graph& graph, ir::Builder build, ValueId value, const ir::Shape& shape) {
  const TensorType& is = graph.value(value).type;
  if (is.shape == shape) return value;
  TensorType type = ir::contiguous(is.dtype, shape, is.sharding);
  return build.make_aten("aten.view.default", {value},
                         {*graph.value(value).name + ".rows", std::move(type)},
                         {{"self", ir::OperandRef{0}}, {"size", shape}});
}

// Views that nothing reads any more, and the cast behind them.
void erase_unread(Graph& graph, ValueId value, NodeId cast) {
  while (graph.value(value).uses.empty() && !is_output(graph, value)) {
    const Node& node = graph.node(graph.value(value).producer);
    if (!ir::is_plain_view(node) && node.id != cast) return;
    const bool is_last = node.id == cast;
    const ValueId before = node.operands[0];
    graph.erase(node.id);
    if (is_last) return;
    value = before;
  }
}

// Bytes of the log-probabilities and of what else is not made any more.
int64_t fuse_one(Graph& graph, const CrossEntropyGraph& of) {
  const auto old = graph.node(of.loss).results;
  const ValueId y = graph.node(of.log_softmax).results[0],
                x = graph.node(of.log_softmax).operands[0],
                old_gradient = graph.node(of.backward).results[0];
  const TensorType rows = graph.value(y).type;
  const std::vector<ir::Arg> args = {{ir::Attr::Reduction, of.reduction},
                                     {ir::Attr::Ignored, of.ignored}};
  const ir::Builder forward(graph, of.loss, graph.node(of.loss).origin);
  const ValueId logits = as_shape(graph, forward, of.logits, rows.shape);
  const TensorType of_row = ir::contiguous(DType::F32, {rows.shape[0]}, rows.sharding);
  const auto same = [&graph](ValueId value) {
    return ir::NewValue{graph.value(value).name, graph.value(value).type};
  };
  const std::vector<ValueId> made = ir::Builder(forward).make_all(
      ir::OpKind::CrossEntropy, {logits, of.target},
      {same(old[0]), same(old[1]), {"largest", of_row}, {"log_of_sum", of_row}}, args);
  ir::Builder backward(graph, of.backward, graph.node(of.backward).origin);
  ValueId gradient = backward.make_in_place(
      ir::OpKind::CrossEntropyBackward, {logits, of.target, of.gradient, made[1], made[2], made[3]},
      *graph.value(old_gradient).name, args);
  graph.replace_all_uses(old[0], made[0]);
  graph.replace_all_uses(old[1], made[1]);
  int64_t bytes = 2 * rows.bytes().v;
  if (of.gradient_cast.valid()) {
    const ValueId narrow = graph.node(of.gradient_cast).results[0];
    gradient = as_shape(graph, backward, gradient, graph.value(narrow).type.shape);
    graph.replace_all_uses(narrow, gradient);
    const ValueId wide = graph.node(of.gradient_cast).operands[0];
    graph.erase(of.gradient_cast);
    erase_unread(graph, wide, of.backward);
    bytes += 2 * rows.bytes().v;
  } else {
    graph.replace_all_uses(old_gradient, gradient);
    graph.erase(of.backward);
  }
  graph.erase(of.loss_backward);
  graph.erase(of.loss);
  graph.erase(of.log_softmax);
  erase_unread(graph, x, of.cast);
  return bytes;
}

}  // namespace

base::Result<Change> fuse_loss(ir::Step& step, const PassContext& context) {
  int64_t losses = 0, bytes = 0;
  for (ir::Program& program : step.programs) {
    for (const NodeId id : program.graph.order()) {
      if (!program.graph.contains(id)) continue;
      const auto found = CrossEntropyMatch(program.graph).run(id);
      if (!found) continue;
      ++losses;
      bytes += fuse_one(program.graph, *found);
    }
  }
  if (losses == 0) return Change::No;
  context.remarks.push_back({"fuse-loss",
                             "losses-fused",
                             {},
                             {{"losses", losses}, {"bytes", bytes}},
                             std::to_string(losses) + " losses became kernels of logits: " +
                                 base::format_bytes(bytes) + " are not made"});
  return Change::Yes;
}

}  // namespace dc::passes
