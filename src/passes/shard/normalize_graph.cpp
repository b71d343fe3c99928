// normalize-graph: what later passes may rely on. Identities are gone, random ops are
// counter-based, each gradient has separate, contiguous storage, nothing is dead, values say how
// they are spread over the mesh, and each kernel has its provider.
#include <algorithm>
#include <numeric>
#include <set>
#include <unordered_set>

#include "src/analysis/storage.h"
#include "src/ir/builder.h"
#include "src/ir/effects.h"
#include "src/passes/pass.h"
#include "src/passes/shard/choose_providers.h"
#include "src/schedule/state_values.h"

namespace dc::passes {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;

// A slice of everything, or its backward. PyTorch leaves them out where it knows the size, and
// writes them where the size was a symbol.
bool slices_everything(const ir::Graph& graph, const ir::Node& node) {
  if (node.overload != "aten.slice.Tensor" && node.overload != "aten.slice_backward.default")
    return false;
  const ir::TensorType& from = graph.value(node.operands[0]).type;
  const ir::TensorType& to = graph.value(node.results[0]).type;
  return from.shape == to.shape && from.strides == to.strides && from.offset == to.offset;
}

bool is_identity(const ir::Graph& graph, const ir::Node& node) {
  if (node.kind != ir::OpKind::Aten) return false;
  return node.overload.info()->cls == ir::AtenClass::Identity || slices_everything(graph, node);
}

bool erase_identities(ir::Graph& graph) {
  bool changed = false;
  for (ir::NodeId id : graph.order()) {
    const ir::Node& node = graph.node(id);
    if (!is_identity(graph, node)) continue;
    for (ir::ValueId result : node.results) {
      if (result.valid()) graph.replace_all_uses(result, node.operands[0]);
    }
    graph.erase(id);
    changed = true;
  }
  return changed;
}

// The dimensions of `type` in the order in which its elements lie, the outermost first.
std::vector<int64_t> outermost_first(const ir::TensorType& type) {
  std::vector<int64_t> dims(type.shape.size());
  std::iota(dims.begin(), dims.end(), 0);
  if (type.is_contiguous()) return dims;  // strides of dimensions of size 1 mean nothing
  std::stable_sort(dims.begin(), dims.end(),
                   [&](int64_t a, int64_t b) { return type.strides[a] > type.strides[b]; });
  return dims;
}

std::vector<int64_t> inverse(const std::vector<int64_t>& dims) {
  std::vector<int64_t> result(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) result[dims[i]] = static_cast<int64_t>(i);
  return result;
}

// A view with dimension dims[i] of `value` as its dimension i.
ir::ValueId permuted(ir::Graph& graph, const ir::Builder& at, ir::ValueId value,
                     const std::vector<int64_t>& dims) {
  if (std::is_sorted(dims.begin(), dims.end())) return value;
  ir::TensorType type = graph.value(value).type;
  const ir::TensorType from = type;
  for (size_t i = 0; i < dims.size(); ++i) {
    type.shape[i] = from.shape[dims[i]];
    type.strides[i] = from.strides[dims[i]];
  }
  return ir::Builder(at).make_aten("aten.permute.default", {value},
                                   {*graph.value(value).name + "_permuted", type},
                                   {{"self", ir::OperandRef{0}}, {"dims", dims}});
}

// A dense one.
ir::ValueId copy_of(ir::Graph& graph, const ir::Builder& at, ir::ValueId value) {
  const ir::TensorType type = graph.value(value).type;
  return ir::Builder(at).make_aten(
      "aten.clone.default", {value},
      {*graph.value(value).name + "_dense", ir::contiguous(type.dtype, type.shape)},
      {{"self", ir::OperandRef{0}}, {"memory_format", ir::MemoryFormatArg{1}, true}});
}

// native_dropout(x, p, train) -> (y, mask) becomes the counter-based op. The op id is its position
// among the random ops. It draws for elements in the order in which those of y lie, which need not
// be that of y's dimensions.
Result<bool> make_random_explicit(ir::Step& step, ir::Graph& graph) {
  int64_t op_id = 0;
  bool changed = false;
  for (ir::NodeId id : graph.order()) {
    const ir::Node& node = graph.node(id);
    if (node.kind == ir::OpKind::Dropout) ++op_id;
    if (node.kind != ir::OpKind::Aten || !node.overload.info()->random) continue;
    const ir::Arg* p = node.find_arg("p");
    const ir::Arg* train = node.find_arg("train");
    const bool trains =
        train && std::holds_alternative<bool>(train->value) && std::get<bool>(train->value);
    if (node.overload != "aten.native_dropout.default" || !p || !trains) {
      return Status(ErrorKind::Unsupported, "DC2603",
                    "random operator " + node.overload.text() + " in module '" +
                        *node.origin.module +
                        "' is not supported; dropout in training mode is the only source of "
                        "randomness dcc can "
                        "replay: remove the operator or draw its numbers outside the model");
    }
    if (graph.value(node.operands[0]).type.dtype == ir::DType::F64) {
      return Status(ErrorKind::Unsupported, "DC2603",
                    "dropout of f64 elements in module '" + *node.origin.module +
                        "' is not supported; convert them to float32 in front of it");
    }
    double probability = 0;
    if (const auto* as_double = std::get_if<double>(&p->value)) probability = *as_double;
    if (const auto* as_int = std::get_if<int64_t>(&p->value))
      probability = static_cast<double>(*as_int);
    const int rng = schedule::rng_entry(step);
    const ir::ValueId rng_value = schedule::state_value(step, graph, rng);
    ir::Builder at(graph, id, node.origin);
    const std::vector<int64_t> dims = outermost_first(graph.value(node.results[0]).type);
    ir::ValueId x = permuted(graph, at, node.operands[0], dims);
    if (!graph.value(x).type.is_contiguous()) x = copy_of(graph, at, x);
    const ir::TensorType type = graph.value(x).type;
    const std::vector<ir::ValueId> fresh =
        at.make_all(ir::OpKind::Dropout, {x, rng_value},
                    {{"dropout", ir::contiguous(type.dtype, type.shape)},
                     {"dropout_mask", ir::contiguous(ir::DType::Bool, type.shape)}},
                    {{ir::Attr::P, probability}, {ir::Attr::OpId, op_id++}});
    for (size_t i = 0; i < node.results.size() && i < fresh.size(); ++i) {
      if (!node.results[i].valid() || graph.value(node.results[i]).uses.empty()) continue;
      graph.replace_all_uses(node.results[i], permuted(graph, at, fresh[i], inverse(dims)));
    }
    graph.erase(id);
    changed = true;
  }
  return changed;
}

bool has_effect(const ir::Node& node) {
  return node.kind == ir::OpKind::Input || node.kind == ir::OpKind::State ||
         ir::writes_any(node.kind);
}

bool erase_dead(ir::Graph& graph) {
  std::unordered_set<int32_t> kept;
  for (const ir::Output& output : graph.outputs) kept.insert(output.value.v);
  std::vector<ir::NodeId> order = graph.order();
  bool changed = false;
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    const ir::Node& node = graph.node(*it);
    if (has_effect(node)) continue;
    bool live = false;
    for (ir::ValueId result : node.results) {
      live |= result.valid() && (!graph.value(result).uses.empty() || kept.contains(result.v));
    }
    if (live) continue;
    graph.erase(*it);
    changed = true;
  }
  return changed;
}

// True when `value` owns its storage alone: no view, not an input or a state.
bool owns_storage(const ir::Graph& graph, ir::ValueId value) {
  const ir::Node& producer = graph.node(graph.value(value).producer);
  if (producer.kind == ir::OpKind::Input) return false;
  return ir::alias_of(producer) == ir::AliasRule::Fresh;
}

// Gradients are reduced and scaled as flat ranges: each must be contiguous and no other output may
// share its node.
bool separate_gradients(ir::Graph& graph) {
  std::set<ir::ValueId> seen;
  bool changed = false;
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const ir::Output& output = graph.outputs[i];
    if (output.kind != ir::OutputKind::Gradient) continue;
    const ir::ValueId root = ir::view_root(graph, output.value);
    const bool first = seen.insert(root).second;
    const ir::Value& value = graph.value(output.value);
    const bool dense = value.type.is_contiguous() && value.type.offset == 0;
    if (first && dense && owns_storage(graph, root) &&
        graph.value(root).type.numel() == value.type.numel()) {
      continue;
    }
    const ir::Builder at(graph, graph.next(value.producer), graph.node(value.producer).origin);
    graph.outputs.set_value(i, copy_of(graph, at, output.value));
    changed = true;
  }
  return changed;
}

// Sums of gradients that autograd added carry no module: they belong to the module of the first
// reader that has one.
void place_accumulations(ir::Graph& graph) {
  std::vector<ir::NodeId> order = graph.order();
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    const ir::Node& node = graph.node(*it);
    const bool placed = node.kind != ir::OpKind::Aten || !node.origin.module.empty();
    if (placed || node.results.empty() || !node.results[0].valid()) continue;
    for (const ir::Use& use : graph.value(node.results[0]).uses) {
      const ir::Node& reader = graph.node(use.node);
      if (reader.origin.module.empty()) continue;
      graph.edit(*it).origin.module = reader.origin.module;
      break;
    }
  }
}

// Inputs differ per rank, so does everything computed from them; a rank's gradient is one summand.
void mark_placements(ir::Step& step, ir::Graph& graph) {
  const size_t axes = std::max<size_t>(step.mesh.axes.size(), 1);
  const ir::AxisMask all = (1U << axes) - 1;
  for (ir::NodeId id : graph.order()) {
    const ir::Node& node = graph.node(id);
    bool varies = node.kind == ir::OpKind::Input &&
                  analysis::input_name(node) != schedule::loss_scale_name(step);
    for (ir::ValueId operand : node.operands) {
      varies |= ir::axes_with(graph.value(operand).type, ir::AxisPlacement::Varying) != 0;
    }
    varies |= node.kind == ir::OpKind::Dropout;
    if (!varies) continue;
    for (ir::ValueId result : node.results) {
      if (result.valid())
        graph.edit(result).type.sharding = ir::sharding_along(all, ir::AxisPlacement::Varying);
    }
  }
  for (const ir::Output& output : graph.outputs) {
    if (output.kind == ir::OutputKind::Gradient) {
      graph.edit(output.value).type.sharding = ir::sharding_along(all, ir::AxisPlacement::Partial);
    }
  }
}

}  // namespace

Result<Change> normalize_graph(ir::Step& step, const PassContext& context) {
  bool changed = false;
  for (ir::Program& program : step.programs) {
    ir::Graph& graph = program.graph;
    changed |= erase_identities(graph);
    DC_ASSIGN_OR_RETURN(const bool random, make_random_explicit(step, graph));
    changed |= random;
    changed |= erase_dead(graph);
    changed |= separate_gradients(graph);
    place_accumulations(graph);
    mark_placements(step, graph);
  }
  changed |= choose_providers(step, context.options.providers, context.cost);
  return changed ? Change::Yes : Change::No;
}

}  // namespace dc::passes
