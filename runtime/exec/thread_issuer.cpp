#include <atomic>
#include <vector>

#include "runtime/exec/issuer.h"
#include "runtime/exec/issuing_thread.h"
#include "runtime/exec/program_times.h"
#include "runtime/exec/run_failure.h"
#include "runtime/exec/trace.h"

namespace dc::runtime::exec {
namespace {

using base::Status;

class ThreadIssuer;

// The commands of one program on one stream, as work for that stream's thread. Its runs follow each
// other; one may be submitted while the one before is under way.
class Queue final : public Work {
 public:
  Queue(ThreadIssuer& issuer, int32_t program, size_t stream, std::unique_ptr<device::Event> done)
      : issuer_(issuer), program_(program), stream_(stream), done_(std::move(done)) {}
  void run() override;
  void wait(uint32_t runs) { (void)done_->wait(runs); }

 private:
  ThreadIssuer& issuer_;
  int32_t program_;
  size_t stream_;
  uint32_t runs_ = 0;
  std::unique_ptr<device::Event> done_;  // never cancelled: it always comes
};

class ThreadIssuer final : public Issuer {
 public:
  ThreadIssuer(BoundPlan& bound, TraceRecorder* trace)
      : bound_(bound), trace_(trace), times_(bound.stream_count()), threads_(bound.stream_count()) {
    for (size_t p = 0; p < bound.programs().size(); ++p) {
      auto& queues = queues_.emplace_back();
      for (size_t s = 0; s < bound.stream_count(); ++s) {
        queues.push_back(std::make_unique<Queue>(*this, static_cast<int32_t>(p), s,
                                                 bound.device().make_event()));
      }
    }
    for (size_t s = 1; s < threads_.size(); ++s) {
      threads_[s] = std::make_unique<IssuingThread>(bound.plan().streams[s].name);
    }
  }
  ~ThreadIssuer() override {
    bound_.cancel_waits();
    threads_.clear();  // joins before anything that a queue touches goes away
  }

  void observe(Executor::Observer observer) override { observer_ = std::move(observer); }
  void write_times(ProgramTimes* times) override { times_of_run_ = times; }
  void at_end_of_runs(Executor::AtEnd at_end) override { at_end_ = std::move(at_end); }

  Status run(int32_t program, const Executor::Meanwhile&) override {
    BoundProgram& what = bound_.program(program);
    auto& queues = queues_[static_cast<size_t>(program)];
    if (!failure_.happened()) {
      ++what.runs;
      for (size_t s = 1; s < queues.size(); ++s) {
        if (!what.commands[s].empty()) threads_[s]->submit(*queues[s]);
      }
      queues[0]->run();
      if (at_end_) at_end_(bound_.stream(0));
      if (!what.leaves_running) wait_for_streams(program);
    }
    return failure_.status();
  }

  Status finish() override {
    for (size_t p = 0; p < queues_.size(); ++p) wait_for_streams(static_cast<int32_t>(p));
    return failure_.status();
  }

  int64_t waited_ns() const override { return 0; }  // the host is the device
  Executor::CommunicationTime communication_time() const override {
    Executor::CommunicationTime sum;
    for (const StreamTime& time : times_) {
      sum.collective_ns += time.collective_ns.load(std::memory_order_relaxed);
      sum.exposed_ns += time.exposed_ns.load(std::memory_order_relaxed);
    }
    return sum;
  }

 private:
  friend class Queue;

  // Issues commands until the end or until some stream failed.
  void issue(int32_t program, size_t stream, uint32_t run) {
    const bool observed = stream == 0 && observer_ != nullptr;
    device::Stream& on = bound_.stream(stream);
    ProgramTimes* const times = stream == 0 ? times_of_run_ : nullptr;
    if (times != nullptr) times->begin(on);
    for (const Command& command : bound_.program(program).commands[stream]) {
      if (failure_.happened()) return;
      const bool timed =
          trace_ || command.kind == CommandKind::Collective || (is_wait(command) && stream == 0);
      const int64_t begin = timed ? TraceRecorder::now() : 0;
      Status status = bound_.issue(command, program, on, run);
      const int64_t end = timed ? TraceRecorder::now() : 0;
      if (status.ok() && observed && command.kind != CommandKind::Poison) {
        status = observer_(program, command.instruction);
      }
      if (!status.ok()) return fail(std::move(status), program, command);
      if (times != nullptr) times->command_issued(on, command.instruction);
      count(command, stream, end - begin);
      if (trace_ && command.kind != CommandKind::Poison && command.kind != CommandKind::Signal) {
        trace_->record(static_cast<int32_t>(stream), program, command.instruction, run, begin, end);
      }
    }
    if (times != nullptr) times->end(on);
  }

  static bool is_wait(const Command& command) {
    return command.kind == CommandKind::Wait || command.kind == CommandKind::WaitPreviousRun;
  }

  void count(const Command& command, size_t stream, int64_t spent_ns) {
    StreamTime& time = times_[stream];
    const bool collective = command.kind == CommandKind::Collective;
    if (collective) time.collective_ns.fetch_add(spent_ns, std::memory_order_relaxed);
    if (stream == 0 && (collective || is_wait(command)))
      time.exposed_ns.fetch_add(spent_ns, std::memory_order_relaxed);
  }

  void wait_for_streams(int32_t program) {
    const BoundProgram& what = bound_.program(program);
    for (size_t s = 1; s < bound_.stream_count(); ++s) {
      if (what.commands[s].empty()) continue;
      queues_[static_cast<size_t>(program)][s]->wait(what.runs);
    }
  }

  void fail(Status status, int32_t program, const Command& command) {
    failure_.add(std::move(status), bound_.plan().programs[static_cast<size_t>(program)], command);
    bound_.cancel();
  }

  struct alignas(64) StreamTime {
    std::atomic<int64_t> collective_ns = 0, exposed_ns = 0;
  };

  BoundPlan& bound_;
  TraceRecorder* trace_;
  Executor::Observer observer_;
  Executor::AtEnd at_end_;
  ProgramTimes* times_of_run_ = nullptr;  // compute's
  RunFailure failure_;
  std::vector<StreamTime> times_;                            // by stream, written by its thread
  std::vector<std::vector<std::unique_ptr<Queue>>> queues_;  // by program and stream
  std::vector<std::unique_ptr<IssuingThread>> threads_;      // entry 0 is empty: the caller issues
};

void Queue::run() {
  issuer_.issue(program_, stream_, ++runs_);
  issuer_.bound_.stream(stream_).signal(*done_, runs_);
}

}  // namespace

std::unique_ptr<Issuer> make_thread_issuer(BoundPlan& bound, TraceRecorder* trace) {
  return std::make_unique<ThreadIssuer>(bound, trace);
}

}  // namespace dc::runtime::exec
