// Issuer: who issues a bound plan's commands to its streams, and when. Private to this folder.
#pragma once

#include <memory>

#include "runtime/exec/bound_plan.h"
#include "runtime/exec/executor.h"

namespace dc::runtime::exec {

class ProgramTimes;  // program_times.h

class Issuer {
 public:
  // Cancels all waits for events, then returns when the issuing threads have ended.
  virtual ~Issuer() = default;
  // As Executor's functions of these names.
  virtual void observe(Executor::Observer observer) = 0;
  virtual void at_end_of_runs(Executor::AtEnd at_end) = 0;
  virtual base::Status run(int32_t program, const Executor::Meanwhile& meanwhile) = 0;
  // Runs from now on write them, each of one program; null: they write none.
  virtual void write_times(ProgramTimes* times) = 0;
  virtual base::Status finish() = 0;
  virtual Executor::CommunicationTime communication_time() const = 0;
  virtual int64_t waited_ns() const = 0;
};

// For devices whose streams are the threads that issue to them: compute's commands are issued by
// the calling thread, those of each other stream by another thread. `trace` may be null.
std::unique_ptr<Issuer> make_thread_issuer(BoundPlan& bound, TraceRecorder* trace);

// For devices whose streams work while the host goes on: the calling thread issues the commands of
// all streams, in the program's order. With `graphs` each program is recorded when it first runs
// and launched as a whole from then on, where all programs consist of what a device records.
// `trace` may be null.
std::unique_ptr<Issuer> make_stream_issuer(BoundPlan& bound, bool graphs, TraceRecorder* trace);

}  // namespace dc::runtime::exec
