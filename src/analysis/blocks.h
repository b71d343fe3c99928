// Blocks: the repeated parts of a model, as its module paths name them.
//
// Siblings are numbered children of one module: `model.layers.0`, `model.layers.1`, ... Only the
// outermost number of a path counts, so the experts inside a layer make no blocks. The
// longest list of siblings holds the blocks; if several are equally long (the stages of a ResNet),
// the elements of all of them are blocks. A lone numbered child is no block.
#pragma once

#include <vector>

#include "src/ir/graph.h"

namespace dc::analysis {

struct Blocks {
  std::vector<int32_t> of_node;  // by node id: 0, 1, ... in order of first appearance, -1 outside
  int32_t count = 0;
};

Blocks blocks(const ir::Graph& graph);

}  // namespace dc::analysis
