// Reductions that a fused kernel can have at its end.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/ir/effects.h"
#include "src/ir/graph.h"
#include "src/passes/fuse/value_readers.h"

namespace dc::passes {

// What a native reduction folds, in row-major order: its operand, or what that is a view of, where
// the view changes the shape alone.
struct FusibleReduction {
  ir::ValueId value;
  std::string overload;       // that folds `dims`, though the node's may fold all
  std::vector<int64_t> dims;  // of the value, ascending
};

// Nothing for other nodes, and where the value has no elements or does not lie in that order, so
// that the kernel apart would fold it in another one.
std::optional<FusibleReduction> fusible_reduction(const ir::Graph& graph, const ir::Node& node);

// Whether the value is an output, or read by a node of which is_inside(id) is false. A reduction
// that is inside may read it through views.
template <typename Inside>
bool is_read_outside(const ir::Graph& graph, ir::ValueId value, const Inside& is_inside,
                     bool through_view = false) {
  if (is_output(graph, value)) return true;
  return std::ranges::any_of(graph.value(value).uses, [&](const ir::Use& use) {
    const ir::Node& reader = graph.node(use.node);
    if (ir::is_plain_view(reader)) {
      return reader.results.size() != 1 || graph.value(reader.results[0]).uses.empty() ||
             is_read_outside(graph, reader.results[0], is_inside, true);
    }
    if (!is_inside(use.node)) return true;
    return through_view && !fusible_reduction(graph, reader);
  });
}

}  // namespace dc::passes
