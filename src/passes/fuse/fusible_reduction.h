// Reductions that a fused kernel can have, and who reads them.
#pragma once

#include <optional>
#include <span>
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

// Whether the dims are the trailing ones of the shape, but for those of one element, so that what
// is folded are rows. They hold several elements.
bool folds_trailing(std::span<const int64_t> dims, const ir::Shape& shape);

// What the value is a plain view of.
ir::ValueId viewed(const ir::Graph& graph, ir::ValueId value);

// Whether an operator that reads `view`, which is a view of `rows`, reads it as a fused kernel does
// that has one element of `rows` for each of its rows: it repeats these along trailing dims alone,
// or `rows` is of a reduction, and the view adds or removes dims of one element.
bool reads_rows(const ir::Graph& graph, ir::ValueId rows, ir::ValueId view);

// Whether the value is an output, or read by a node of which is_inside(id) is false. A reduction
// that is inside may read it through views, operators may read it as rows. `seen`: a view of it.
template <typename Inside>
bool is_read_outside(const ir::Graph& graph, ir::ValueId value, const Inside& is_inside,
                     ir::ValueId seen = {}) {
  const bool through_view = seen.valid();
  if (!through_view) seen = value;
  if (is_output(graph, seen)) return true;
  return std::ranges::any_of(graph.value(seen).uses, [&](const ir::Use& use) {
    const ir::Node& reader = graph.node(use.node);
    if (ir::is_plain_view(reader)) {
      return reader.results.size() != 1 || graph.value(reader.results[0]).uses.empty() ||
             is_read_outside(graph, value, is_inside, reader.results[0]);
    }
    if (!is_inside(use.node)) return true;
    return through_view && !fusible_reduction(graph, reader) && !reads_rows(graph, value, seen);
  });
}

}  // namespace dc::passes
