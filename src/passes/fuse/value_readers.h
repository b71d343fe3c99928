// Who reads a value, its views, and in which order nodes come.
#pragma once

#include <algorithm>
#include <vector>

#include "src/ir/effects.h"
#include "src/ir/graph.h"

namespace dc::passes {

inline bool is_output(const ir::Graph& graph, ir::ValueId value) {
  return graph.outputs.contains(value);
}

// By one node, as one of its operands, and it is no output.
inline bool is_read_once(const ir::Graph& graph, ir::ValueId value) {
  return graph.value(value).uses.size() == 1 && !is_output(graph, value);
}

// By node: its place in program order.
inline std::vector<int> positions(const ir::Graph& graph) {
  std::vector<int> all(graph.node_capacity());
  int next = 0;
  for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id)) all[id.index()] = next++;
  return all;
}

// Adds plain views of the value that come no later than `place`, in an order in which each follows
// what it is of.
inline void collect_views(const ir::Graph& graph, ir::ValueId value,
                          const std::vector<int>& position, int place,
                          std::vector<ir::NodeId>& views) {
  for (const ir::Use& use : graph.value(value).uses) {
    const ir::Node& reader = graph.node(use.node);
    if (!ir::is_plain_view(reader) || position[use.node.index()] > place) continue;
    views.push_back(use.node);
    for (const ir::ValueId seen : reader.results) {
      if (seen.valid()) collect_views(graph, seen, position, place, views);
    }
  }
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
