#include "src/passes/fuse/write_as_read.h"

#include <map>
#include <optional>
#include <vector>

#include "src/ir/effects.h"
#include "src/passes/fuse/elementwise_groups.h"
#include "src/passes/fuse/placed_parts.h"
#include "src/passes/fuse/value_readers.h"

namespace dc::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

// Whether it is computed element by element, or puts parts in their places.
bool can_write_anywhere(const Graph& graph, const Node& maker) {
  return is_fusible(graph, maker) || !placed_parts(graph, maker).empty();
}

// The value that the clone reads, what that is a view of, and so on to the result of such an
// operator, each read by nothing else. Empty if it does not end there.
std::vector<ValueId> views_to_maker(const Graph& graph, const Node& clone) {
  std::vector<ValueId> views;
  for (ValueId value = clone.operands[0]; is_read_once(graph, value);) {
    views.push_back(value);
    const Node& maker = graph.node(graph.value(value).producer);
    if (can_write_anywhere(graph, maker)) return views;
    if (!ir::is_plain_view(maker) || maker.operands.size() != 1 || maker.results.size() != 1)
      return {};
    value = maker.operands[0];
  }
  return {};
}

// Each stride of a dim that has several elements, and that of the same dim in `to`. Nothing if the
// dims do not say that, or rows would be torn.
std::optional<std::map<int64_t, int64_t>> new_strides(const ir::TensorType& from,
                                                      const ir::TensorType& to) {
  std::map<int64_t, int64_t> strides;
  for (size_t dim = 0; dim < from.shape.size(); ++dim) {
    if (from.shape[dim] == 1) continue;
    if (!strides.emplace(from.strides[dim], to.strides[dim]).second) return std::nullopt;
  }
  const auto row = strides.find(1);
  if (row == strides.end() || row->second != 1) return std::nullopt;
  return strides;
}

ir::TensorType with_strides(ir::TensorType type, const std::map<int64_t, int64_t>& strides) {
  for (int64_t& stride : type.strides) {
    const auto known = strides.find(stride);
    if (known != strides.end()) stride = known->second;
  }
  return type;
}

// Whether a type is another one with its dims in another order.
bool is_transposed(const ir::TensorType& a, const ir::TensorType& b) {
  std::multimap<int64_t, int64_t> of_a, of_b;  // sizes by strides
  for (size_t dim = 0; dim < a.shape.size(); ++dim) of_a.emplace(a.strides[dim], a.shape[dim]);
  for (size_t dim = 0; dim < b.shape.size(); ++dim) of_b.emplace(b.strides[dim], b.shape[dim]);
  return of_a == of_b && a.offset == 0 && b.offset == 0;
}

void drop(Graph& graph, NodeId id) {
  const Node& clone = graph.node(id);
  if (clone.kind != ir::OpKind::Aten || clone.overload != "aten.clone.default") return;
  const std::vector<ValueId> views = views_to_maker(graph, clone);
  if (views.empty()) return;
  const ir::TensorType from = graph.value(views[0]).type;
  const ir::TensorType to = graph.value(clone.results[0]).type;
  const auto strides = new_strides(from, to);
  if (!to.is_contiguous() || !strides || with_strides(from, *strides) != to) return;
  for (const ValueId view : views)
    if (!is_transposed(graph.value(view).type, from)) return;
  for (const ValueId view : views)
    graph.set_type(view, with_strides(graph.value(view).type, *strides));
  graph.replace_all_uses(clone.results[0], views[0]);
  graph.erase(id);
}

}  // namespace

void write_as_read(Graph& graph) {
  for (const NodeId id : graph.order()) drop(graph, id);
}

}  // namespace dc::passes
