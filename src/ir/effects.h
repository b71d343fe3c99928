// What a node does to bytes: whose its results are, and what it changes in place.
#pragma once

#include "src/ir/graph.h"

namespace dc::ir {

AliasRule alias_of(const Node& node);  // Fresh for an unknown overload
// True if every result is of the bytes of operand 0: views, dones, and ops that work in place.
bool is_view(const Node& node);
// False for nodes that only name or regroup bytes: inputs, state, views, releases.
bool runs(const Node& node);
// A view that runs nothing: of ATen, or a flatten.
bool is_plain_view(const Node& node);
// The entry that a `state` node stands for; an invalid id for other nodes.
StateId entry_of(const Node& node);
// Follows views to the value that owns the storage.
ValueId view_root(const Graph& graph, ValueId value);

// Where a kernel runs, and all that it touches lies: on the device, but for an update or a cast
// that reads a copy on the host or makes its result there.
Space kernel_space(const Graph& graph, const Node& node);

// What an update makes a copy of its parameter; invalid for other nodes, and if it has none.
ValueId copy_of_parameter(const Node& node);

bool writes(const Node& node, size_t operand);  // in place
// False if nothing of what the operand held matters to the node.
bool reads(const Node& node, size_t operand);

}  // namespace dc::ir
