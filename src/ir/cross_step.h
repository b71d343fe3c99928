// Gathers that go on into the next step: started at the end of the last program (spans_steps=1),
// waited for in the first program (all_gather_into.wait_previous_step). Before the first step
// nothing is under way, and state is whole.
#pragma once

#include <vector>

#include "src/ir/step.h"

namespace dc::ir {

bool spans_steps(const Node& start);

struct CrossStepGather {
  NodeId start;    // in the last program
  int entry = -1;  // index into Step::state of what it fills; -1 if that is no state entry's value
};
std::vector<CrossStepGather> cross_step_gathers(const Step& step);  // in program order

// The entry that an all_gather_into.wait_previous_step waits for; -1 if it is no state entry's
// value.
int awaited_entry(const Graph& graph, const Node& wait);

}  // namespace dc::ir
