#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/exec/issuer.h"
#include "runtime/exec/program_times.h"
#include "runtime/exec/run_failure.h"
#include "runtime/exec/stream_trace.h"

namespace dc::runtime::exec {
namespace {

using base::Status;

// A command and the stream that it is issued to.
struct Issue {
  size_t stream = 0;
  Command command;
};

// The commands of all streams in the program's order, in which a signal comes before its waits.
std::vector<Issue> in_order(const BoundProgram& program) {
  std::vector<Issue> all;
  std::vector<size_t> next(program.commands.size(), 0);
  for (;;) {
    size_t chosen = next.size();
    for (size_t s = 0; s < next.size(); ++s) {
      if (next[s] == program.commands[s].size()) continue;
      if (chosen == next.size() || program.commands[s][next[s]].instruction <
                                       program.commands[chosen][next[chosen]].instruction)
        chosen = s;
    }
    if (chosen == next.size()) return all;
    all.push_back({chosen, program.commands[chosen][next[chosen]++]});
  }
}

// How many commands the first graph of a program has, and how many there must be after it: the
// device works on the first one while the host launches the second one.
constexpr size_t kFirst = 32, kLeastAfter = 256;

// Where a program's second graph begins: up to there only the first stream has work, and nothing
// waits for a part of it. 0: one graph has all.
size_t split(std::span<const Issue> program) {
  const auto alone = [](const Issue& issue) {
    return issue.stream == 0 && issue.command.kind != CommandKind::Signal;
  };
  const bool splits = program.size() >= kFirst + kLeastAfter &&
                      std::all_of(program.begin(), program.begin() + kFirst, alone);
  return splits ? kFirst : 0;
}

// As graphs, a program begins when all work before it on the first stream is done, and its end is
// the end of all streams. So it needs no waits within for earlier runs; what they are for is waited
// for before.
class StreamIssuer final : public Issuer {
 public:
  StreamIssuer(BoundPlan& bound, bool graphs, TraceRecorder* trace)
      : bound_(bound), uses_graphs_(graphs) {
    if (trace != nullptr) trace_ = std::make_unique<StreamTrace>(bound, *trace);
    for (const BoundProgram& program : bound.programs()) programs_.push_back(in_order(program));
    for (const std::vector<Issue>& program : programs_)
      for (const Issue& issue : program)
        uses_graphs_ = uses_graphs_ && (issue.command.kind == CommandKind::WaitPreviousRun ||
                                        bound.can_be_recorded(issue.command));
    for (size_t s = 0; s < bound.stream_count(); ++s) streams_.push_back(&bound.stream(s));
  }
  ~StreamIssuer() override {
    bound_.cancel_waits();
    for (size_t s = 0; s < bound_.stream_count(); ++s) (void)bound_.stream(s).drain();
  }

  void observe(Executor::Observer observer) override { observer_ = std::move(observer); }
  void write_times(ProgramTimes* times) override { times_ = times; }
  void at_end_of_runs(Executor::AtEnd at_end) override { at_end_ = std::move(at_end); }

  Status run(int32_t program, const Executor::Meanwhile& meanwhile) override {
    if (failure_.happened()) return failure_.status();
    BoundProgram& what = bound_.program(program);
    // Streams that go on from a run without a graph do not know of one.
    const bool as_graph = uses_graphs_ && !observer_;
    if (as_graph && !was_graph_) DC_RETURN_IF_ERROR(finish());
    was_graph_ = as_graph;
    DC_RETURN_IF_ERROR(record_trace());
    ++what.runs;
    if (trace_ != nullptr) trace_->begin_run(program, what.runs, as_graph);
    DC_RETURN_IF_ERROR(as_graph ? launch(program, what.runs) : issue_all(program, what.runs));
    work_meanwhile(as_graph ? device_works_from_ : Clock::now(), meanwhile);
    return as_graph || what.leaves_running ? finish(0) : finish();
  }

  Status finish() override {
    for (size_t s = 0; s < bound_.stream_count() && !failure_.happened(); ++s) (void)finish(s);
    DC_RETURN_IF_ERROR(failure_.status());
    return record_trace();
  }

  // One rank: nothing to wait for.
  Executor::CommunicationTime communication_time() const override { return {}; }
  int64_t waited_ns() const override { return waited_.count(); }

 private:
  using Clock = std::chrono::steady_clock;
  using Graphs = std::vector<std::unique_ptr<device::Graph>>;  // in their order

  // `begin`: from then on the device had work.
  void work_meanwhile(Clock::time_point begin, const Executor::Meanwhile& work) {
    if (at_end_) at_end_(bound_.stream(0));
    if (work) work();
    const auto spent = Clock::now() - begin;
    if (!bound_.stream(0).is_at_rest()) waited_ += spent;
  }

  // A collective that was ended before its time leaves its stream without an error.
  Status finish(size_t stream) {
    const auto begin = Clock::now();
    Status status = bound_.stream(stream).drain();
    waited_ += Clock::now() - begin;
    if (status.ok()) status = bound_.collectives_health();
    return status.ok() ? failure_.status() : fail(std::move(status));
  }

  // Before a graph is launched again, which writes the same timestamps.
  Status record_trace() {
    if (trace_ == nullptr) return base::ok_status();
    DC_RETURN_IF_ERROR(finish(0));
    Status status = trace_->record_finished();
    return status.ok() ? status : fail(std::move(status));
  }

  // Timestamps before and after all of a program, if its run is timed.
  void begin_timed() {
    if (trace_ != nullptr) trace_->write_begin();
    if (times_ != nullptr) times_->begin(bound_.stream(0));
  }
  void end_timed() {
    if (times_ != nullptr) times_->end(bound_.stream(0));
  }

  Status issue_all(int32_t program, uint32_t run) {
    begin_timed();
    for (const Issue& issue : programs_[static_cast<size_t>(program)])
      DC_RETURN_IF_ERROR(one_or_fail(issue, program, run));
    end_timed();
    return base::ok_status();
  }

  Status launch(int32_t program, uint32_t run) {
    for (const Issue& issue : programs_[static_cast<size_t>(program)]) {
      if (issue.command.kind != CommandKind::WaitPreviousRun) continue;  // in no graph
      Status status = bound_.issue(issue.command, program, bound_.stream(issue.stream), run);
      if (!status.ok()) return fail(std::move(status), program, issue.command);
    }
    Graphs& graphs = graphs_[{program, times_}];
    if (graphs.empty()) DC_RETURN_IF_ERROR(record(program, run, graphs));
    graphs.front()->launch(bound_.stream(0));
    device_works_from_ = Clock::now();
    for (size_t i = 1; i < graphs.size(); ++i) graphs[i]->launch(bound_.stream(0));
    bound_.signal_later_runs(program, bound_.stream(0), run);
    return base::ok_status();
  }

  Status record(int32_t program, uint32_t run, Graphs& graphs) {
    const std::span<const Issue> all = programs_[static_cast<size_t>(program)];
    const size_t second = split(all);
    if (second > 0) DC_RETURN_IF_ERROR(record(program, run, 0, second, graphs));
    return record(program, run, second, all.size(), graphs);
  }

  // A graph of the commands from `begin` to `end`.
  Status record(int32_t program, uint32_t run, size_t begin, size_t end, Graphs& graphs) {
    const std::vector<Issue>& all = programs_[static_cast<size_t>(program)];
    auto recorded = bound_.device().record(streams_, [&] {
      if (begin == 0) begin_timed();
      for (size_t i = begin; i < end; ++i) {
        if (all[i].command.kind == CommandKind::WaitPreviousRun) continue;
        DC_RETURN_IF_ERROR(one_or_fail(all[i], program, run));
      }
      if (end == all.size()) end_timed();
      return base::ok_status();
    });
    if (!recorded.ok()) return fail(std::move(recorded).status());
    graphs.push_back(std::move(recorded).value());
    return base::ok_status();
  }

  Status one_or_fail(const Issue& issue, int32_t program, uint32_t run) {
    Status status = one(issue, program, run);
    return status.ok() ? base::ok_status() : fail(std::move(status), program, issue.command);
  }

  Status one(const Issue& issue, int32_t program, uint32_t run) {
    device::Stream& stream = bound_.stream(issue.stream);
    DC_RETURN_IF_ERROR(bound_.issue(issue.command, program, stream, run));
    if (trace_ != nullptr) trace_->command_issued(issue.stream, issue.command);
    if (times_ != nullptr && issue.stream == 0)
      times_->command_issued(stream, issue.command.instruction);
    if (issue.stream != 0 || !observer_ || issue.command.kind == CommandKind::Poison)
      return base::ok_status();
    DC_RETURN_IF_ERROR(stream.drain());
    return observer_(program, issue.command.instruction);
  }

  Status fail(Status status, int32_t program, const Command& command) {
    failure_.add(std::move(status), bound_.plan().programs[static_cast<size_t>(program)], command);
    bound_.cancel();
    return failure_.status();
  }
  // Work that failed after it was issued: which instruction it was is not known.
  Status fail(Status status) {
    failure_.add(std::move(status));
    bound_.cancel();
    return failure_.status();
  }

  BoundPlan& bound_;
  Executor::Observer observer_;
  Executor::AtEnd at_end_;
  std::chrono::nanoseconds waited_{0};
  Clock::time_point device_works_from_;  // the first graph of this run was launched
  RunFailure failure_;
  std::vector<std::vector<Issue>> programs_;
  std::vector<device::Stream*> streams_;
  // Of programs, with the timestamps that are in them (none: null), from the first such run on.
  std::map<std::pair<int32_t, const ProgramTimes*>, Graphs> graphs_;
  ProgramTimes* times_ = nullptr;  // of the run that is timed, compute's
  std::unique_ptr<StreamTrace> trace_;
  bool uses_graphs_, was_graph_ = false;
};

}  // namespace

std::unique_ptr<Issuer> make_stream_issuer(BoundPlan& bound, bool graphs, TraceRecorder* trace) {
  return std::make_unique<StreamIssuer>(bound, graphs, trace);
}

}  // namespace dc::runtime::exec
