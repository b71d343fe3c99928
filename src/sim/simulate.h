// Simulator: when every node of a scheduled step runs, from the times of a cost model. No clock,
// integer nanoseconds, equal on every host.
//
// The machine is the executor's (runtime/exec), with shared links and contention: machine.h. A
// start takes no time on stream 0. A done waits until its collective has ended: that wait is
// exposed communication. A program ends when all of its streams have ended, the last one when
// compute has if gathers cross into the next step; what is reported of a run of the first program
// is then reported with those under way.
#pragma once

#include <vector>

#include "src/cost/cost_model.h"
#include "src/ir/step.h"

namespace dc::sim {

// A kernel, or a collective at its start. `exposed`: how long stream 0 waited for it.
struct Interval {
  ir::NodeId node;
  int stream = 0;
  base::Nanos begin, end;
  base::Nanos exposed;
};

struct ProgramRun {
  std::vector<Interval> intervals;  // in program order
  std::vector<base::Nanos> busy;    // by stream
  base::Nanos exposed;              // sum over collectives
  base::Nanos contention;           // what collectives next to it added to compute
  base::Nanos time;
};

struct StepRun {
  std::vector<ProgramRun> programs;       // one run of each
  base::Nanos time, exposed, contention;  // of the step: repeats included
  base::Nanos compute, communication;     // each alone, repeats included
};

// Time of a node: kernels from `compute`, the first start of a bucket from `collective`, starts of
// copies from `copy`; nothing for starts that join a bucket, dones, views, inputs, state, releases.
base::Nanos node_time(const ir::Step& step, const ir::Graph& graph, const ir::Node& node,
                      const cost::CostModel& cost);

// The step must be scheduled.
StepRun simulate(const ir::Step& step, const cost::CostModel& cost);

}  // namespace dc::sim
