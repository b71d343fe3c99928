// What an integer input of an archive without a description indexes.
#pragma once

#include <optional>

#include "src/base/step_enums.h"
#include "src/ir/graph.h"

namespace dc::frontend {

struct IndexUse {
  bool embedding = false;                 // else it selects classes
  int64_t bound = 0;                      // exclusive
  bool of_all = true;                     // every value of the input is below the bound
  int64_t ignored = base::kIgnoredLabel;  // a class that the loss leaves out
};

// Follows an integer input to the embeddings and losses that it indexes. Parts of the input
// (columns) may have bounds of their own, or none: the least one is returned, as not `of_all`.
std::optional<IndexUse> index_use(const ir::Graph& graph, ir::ValueId input);

}  // namespace dc::frontend
