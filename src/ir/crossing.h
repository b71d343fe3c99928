// Gathers that go on into the next step: started at the end of the last program (crosses=1), waited
// for in the first program (all_gather_into.arrived). Before the first step nothing is under way,
// and state is whole.
#pragma once

#include <vector>

#include "src/ir/step.h"

namespace dc::ir {

bool crosses(const Node& start);

struct Crossing {
  NodeId start;    // in the last program
  int entry = -1;  // index into Step::state of what it fills; -1 if that is no state entry's value
};
std::vector<Crossing> crossings(const Step& step);  // in program order

// The entry that an all_gather_into.arrived waits for; -1 if it is no state entry's value.
int arriving_entry(const Step& step, const Graph& graph, const Node& arrived);

}  // namespace dc::ir
