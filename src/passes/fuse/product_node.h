// Products of two matrices, and whether another kernel in their place is faster.
#pragma once

#include <span>

#include "src/cost/cost_model.h"
#include "src/ir/graph.h"
#include "src/passes/pass.h"

namespace dc::passes {

// aten.mm of the runtime's own, of f32 or bf16.
bool is_product(const ir::Node& node);

// Whether `fused` is to stand for the kernels `apart`, as FuseProducts says.
bool fused_pays(const ir::Graph& graph, const ir::Node& fused, std::span<const ir::NodeId> apart,
                const PassContext& context);

}  // namespace dc::passes
