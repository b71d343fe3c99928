// What a node does to bytes: whose its results are, and what it changes in place.
#pragma once

#include "src/ir/graph.h"

namespace dc::ir {

// What passes ask of every node is here in the header.
inline AliasRule alias_of(const Node& node) {  // Fresh for an unknown overload
  if (node.kind != OpKind::Aten) return traits(node.kind).alias;
  const AtenInfo* aten = node.overload.info();
  return aten != nullptr ? aten->alias : AliasRule::Fresh;
}
// True if every result is of the bytes of operand 0: views, dones, and ops that work in place.
inline bool is_view(const Node& node) { return alias_of(node) == AliasRule::View; }
// False for nodes that only name or regroup bytes: inputs, state, views, releases.
inline bool runs(const Node& node) {
  if (node.kind == OpKind::Aten) return !is_view(node);
  return traits(node.kind).provider != Provider::None;
}
// A view that runs nothing: of ATen, or a flatten.
inline bool is_plain_view(const Node& node) { return is_view(node) && !runs(node); }
// The entry that a `state` node stands for; an invalid id for other nodes.
StateId entry_of(const Node& node);
// Follows views to the value that owns the storage.
ValueId view_root(const Graph& graph, ValueId value);

// Where a kernel runs, and all that it touches lies: on the device, but for an update or a cast
// that reads a copy on the host or makes its result there.
Space kernel_space(const Graph& graph, const Node& node);

// What an update makes a copy of its parameter; invalid for other nodes, and if it has none.
ValueId copy_of_parameter(const Node& node);

inline bool writes(const Node& node, size_t operand) {  // in place
  return writes(node.kind, operand);
}
// False if nothing of what the operand held matters to the node.
bool reads(const Node& node, size_t operand);

}  // namespace dc::ir
