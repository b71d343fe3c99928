// The KernelSignature of a node; runtime/plan/kernel_signature.h gives the same one of the
// instruction that the node becomes.
#pragma once

#include "src/base/kernel_signature.h"
#include "src/base/kernel_table.h"
#include "src/ir/graph.h"

namespace dc::ir {

// Who supplies the node's kernel in a plan. Nothing if it has none: sources, collectives, copies
// between spaces. A view of ATen has a provider, though it does not run.
std::optional<base::Provider> provider_of(const Node& node);
// Whether it has one, as asked for every node time and again.
bool has_provider(const Node& node);

// Both require a provider.
base::KernelSignature signature_of(const Graph& graph, const Node& node);
// The same, made once per node and then remembered in it, in copies of the graph too.
base::KernelId kernel_of(const Graph& graph, const Node& node);

}  // namespace dc::ir
