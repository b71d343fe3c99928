// One fused kernel in place of element-wise kernels.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "src/base/kernel_signature.h"
#include "src/ir/graph.h"

namespace dc::passes {

struct FusedKernel {
  ir::NodeId node;
  std::vector<ir::ValueId> made;     // its results
  std::vector<ir::ValueId> results;  // the members' values that they stand for
};

// Puts a kernel that computes what the members do before the last of them; they stay. Its results
// are the values that others than the members read. `members`: in program order, each is_fusible()
// (elementwise_groups.h), of one shape, or a fusible_reduction() of such a value, or computes for
// each row of that shape what reductions give for it, or puts parts in place in that shape, with
// makers of its parts (placed_parts.h); what they read is there before the last. Nothing if it
// would have more tensors than a fused kernel can have.
std::optional<FusedKernel> make_fused_kernel(ir::Graph& graph, std::span<const ir::NodeId> members);
// Values of the members that others read, in their order: the results of that kernel.
std::vector<ir::ValueId> read_outside(const ir::Graph& graph, std::span<const ir::NodeId> members);
// The kernel that make_fused_kernel() would put there if others read these of the members' values,
// in the members' order. Nothing is changed.
base::KernelSignature fused_signature(const ir::Graph& graph, std::span<const ir::NodeId> members,
                                      std::vector<ir::ValueId> results);
// Others read its results, and the members go.
void take_the_place(ir::Graph& graph, const FusedKernel& kernel,
                    std::span<const ir::NodeId> members);

}  // namespace dc::passes
