// StreamTrace: when the commands of runs were done on the streams of a device that works while the
// host goes on, by timestamps behind them, for a TraceRecorder. Private to this folder.
#pragma once

#include <memory>
#include <vector>

#include "runtime/exec/bound_plan.h"
#include "runtime/exec/trace.h"

namespace dc::runtime::exec {

// A command begins where the one before it on its stream ended, and ends at its own timestamp; a
// signal has none and takes no time. The device's clock and the host's are related after each run:
// so one that runs faster than the other shifts what it says by less than a run's worth of it.
class StreamTrace {
 public:
  // Both must outlive it.
  StreamTrace(BoundPlan& bound, TraceRecorder& recorder);
  ~StreamTrace();

  // Run `run` of a program is issued next. As a graph it writes the timestamps that are in the
  // program's graph: the run before of this program was recorded (record_finished) before.
  void begin_run(int32_t program, uint32_t run, bool as_graph);
  // For the run that is issued or recorded: first, and after each command of the streams.
  void write_begin();
  void command_issued(size_t stream, const Command& command);
  // Records the runs that are over. Compute's stream has nothing to do; it is drained. Unavailable
  // (69) if the device does not say.
  base::Status record_finished();

 private:
  class Run;
  struct ProgramRuns {
    std::unique_ptr<Run> in_graph;
    std::vector<std::unique_ptr<Run>> issued;  // as many as are under way at once
  };
  Run& unused(ProgramRuns& runs, int32_t program);
  base::Status relate_clocks();

  BoundPlan& bound_;
  TraceRecorder& recorder_;
  std::vector<ProgramRuns> programs_;
  Run* current_ = nullptr;
  std::vector<Run*> under_way_;       // in order of issue
  std::vector<int64_t> recorded_to_;  // by stream: the end of its last record
  // A point of compute's stream that both clocks know: the one that the host saw most exactly.
  std::unique_ptr<device::Timestamp> common_, attempt_;
  int64_t common_ns_ = 0;  // by the host's clock
};

}  // namespace dc::runtime::exec
