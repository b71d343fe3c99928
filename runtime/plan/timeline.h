// When each instruction of a program runs by the plan's own prediction: the executor's rules with
// the durations that the plan holds.
//
// Every stream carries out its instructions in program order. A wait ends when the latest signal
// of its event, of those before the wait in program order, has been given. A program begins with
// all streams free and ends when all have ended.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/plan/plan.h"

namespace dc::runtime::plan {

struct ProgramTimeline {
  std::vector<int64_t> begin_ns, end_ns;  // by instruction, from the program's begin
  int64_t time_ns = 0;
  int64_t exposed_ns = 0;     // stream 0 waited for others, or was in collectives on its stream
  int64_t collective_ns = 0;  // in collectives, summed over streams
};

bool has_timeline(const Plan& plan);  // plans of schema 1.0 hold no durations
// `plan` must have one.
ProgramTimeline predicted_timeline(const Plan& plan, const Program& program);

}  // namespace dc::runtime::plan
