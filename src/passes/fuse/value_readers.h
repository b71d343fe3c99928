// Who reads a value, and views that nothing reads.
#pragma once

#include <algorithm>

#include "src/ir/effects.h"
#include "src/ir/graph.h"

namespace dc::passes {

inline bool is_output(const ir::Graph& graph, ir::ValueId value) {
  return graph.outputs.contains(value);
}

// Whether the value or a view of it is an output, or is read by a node of which reads(id) is true.
// Plain views are followed and no readers themselves.
template <typename Reads>
bool is_read(const ir::Graph& graph, ir::ValueId value, const Reads& reads) {
  return is_output(graph, value) ||
         std::ranges::any_of(graph.value(value).uses, [&](const ir::Use& use) {
           const ir::Node& reader = graph.node(use.node);
           if (!ir::is_plain_view(reader)) return reads(use.node);
           return std::ranges::any_of(reader.results, [&](ir::ValueId seen) {
             return seen.valid() && is_read(graph, seen, reads);
           });
         });
}

// Whether the value, which is no view, lives until `is_late` is true of the node that runs: state
// and inputs do, others where such a node reads them.
template <typename Late>
bool lives_until(const ir::Graph& graph, ir::ValueId root, const Late& is_late) {
  const ir::OpKind maker = graph.node(graph.value(root).producer).kind;
  return maker == ir::OpKind::State || maker == ir::OpKind::Input || is_read(graph, root, is_late);
}

// Erases what makes the value if it is a plain view that nothing reads, and so on to what owns the
// bytes, which stays.
inline void erase_unread_views(ir::Graph& graph, ir::ValueId value) {
  while (graph.contains(graph.value(value).producer)) {
    const ir::Node& maker = graph.node(graph.value(value).producer);
    if (!ir::is_plain_view(maker)) return;
    for (const ir::ValueId result : maker.results) {
      if (result.valid() && (!graph.value(result).uses.empty() || is_output(graph, result))) return;
    }
    const ir::ValueId before = maker.operands[0];
    graph.erase(maker.id);
    value = before;
  }
}

}  // namespace dc::passes
