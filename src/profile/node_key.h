// The profile key of an IR node; runtime/measure builds the same text from the emitted instruction.
#pragma once

#include <string>

#include "src/ir/graph.h"

namespace dc::profile {

std::string node_key(const ir::Graph& graph, const ir::Node& node);

}  // namespace dc::profile
