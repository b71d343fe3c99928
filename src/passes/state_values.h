// State entries and the nodes that read them; alias questions that several passes ask.
#pragma once

#include <string>

#include "src/ir/step.h"

namespace dc::passes {

ir::AliasRule alias_rule(const ir::Node& node);
// Follows views to the value that owns the storage.
ir::ValueId view_root(const ir::Graph& graph, ir::ValueId value);

// The value of a state entry in a graph: its state node, added at the front if the graph does not
// read the entry yet.
ir::ValueId state_value(ir::Step& step, ir::Graph& graph, int entry);
// Adds an entry and returns its index. The name must be new.
int add_entry(ir::Step& step, ir::StateEntry entry);
int rng_entry(ir::Step& step);  // the counters of random ops, added on first use

std::string loss_scale_name(
    const ir::Step& step);  // name of the loss_scale input, empty if there is none
int trainable_count(const ir::Step& step);
int trainable_index(const ir::Step& step,
                    int parameter);  // position among trainable parameters, -1 if frozen

}  // namespace dc::passes
