// The update in pieces that can move: what one parameter, or the parameters whose refresh travels
// as one collective, needs done once its gradient is there.
#pragma once

#include <vector>

#include "src/schedule/time_axis.h"

namespace dc::passes {

struct UpdateFragment {
  std::vector<int> params;           // columns of the table
  std::vector<ir::NodeId> update;    // optimizer, rounding, copy, clearing of the sum; in order
  std::vector<ir::NodeId> gathers;   // the bucket that makes it whole again; may be empty
  std::vector<ir::NodeId> gathered;  // their dones
  int32_t ready = 0;                 // first position where it may be placed
  int32_t needed = INT32_MAX;        // position in the first program of the first use of the result
  base::Nanos update_time, gather_time;
};

// By state entry: the first node of the step's first program that touches it; an invalid one if
// none does.
struct FirstUse {
  ir::NodeId node;
  int32_t position = INT32_MAX;
};
std::vector<FirstUse> first_uses(const ir::Step& step);

// Fragments of the step's last program, in program order; what cannot move is none. `before_norm`:
// an update waits for nothing but its own gradient (and its square sum), not for clip_and_check.
std::vector<UpdateFragment> update_fragments(const ir::Step& step, const schedule::TimeAxis& axis,
                                             const cost::CostModel& cost,
                                             const std::vector<FirstUse>& uses, bool before_norm);

}  // namespace dc::passes
