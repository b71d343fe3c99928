#include "runtime/exec/stream_trace.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace dc::runtime::exec {
namespace {

using base::Status;

constexpr int kAttempts = 4;  // at a point that both clocks know

}  // namespace

// The timestamps of one run of a program at a time.
class StreamTrace::Run {
 public:
  Run(BoundPlan& bound, int32_t program, bool in_graph) : program_(program) {
    const BoundProgram& what = bound.program(program);
    for (size_t s = 0; s < what.commands.size(); ++s) {
      if (what.commands[s].empty()) continue;
      StreamMarks& marks = streams_.emplace_back();
      marks.stream = s;
      marks.begin = bound.device().make_timestamp();
      for (const Command& command : what.commands[s]) {
        if (command.kind == CommandKind::Signal) continue;
        Mark& mark = marks.marks.emplace_back();
        mark.instruction = command.kind == CommandKind::Poison ? -1 : command.instruction;
        // A graph begins when the runs before it are over: it does not wait for them within.
        if (!in_graph || command.kind != CommandKind::WaitPreviousRun)
          mark.end = bound.device().make_timestamp();
      }
    }
  }

  void begin(uint32_t run) {
    run_ = run;
    is_under_way_ = true;
  }
  bool is_under_way() const { return is_under_way_; }

  void write_begin(BoundPlan& bound) {
    for (StreamMarks& marks : streams_) {
      marks.written = 0;
      bound.stream(marks.stream).write_timestamp(*marks.begin);
    }
  }
  void write_end(BoundPlan& bound, size_t stream) {
    const auto marks = std::find_if(streams_.begin(), streams_.end(),
                                    [&](const StreamMarks& of) { return of.stream == stream; });
    while (marks->marks[marks->written].end == nullptr) ++marks->written;
    bound.stream(stream).write_timestamp(*marks->marks[marks->written++].end);
  }

  bool is_over() const {
    return std::all_of(streams_.begin(), streams_.end(),
                       [](const StreamMarks& marks) { return marks.last().is_written(); });
  }
  // `common`: a point later than all of it, when the host's clock was `common_ns`.
  Status record(const device::Timestamp& common, int64_t common_ns, TraceRecorder& recorder,
                std::vector<int64_t>& recorded_to) {
    is_under_way_ = false;
    for (const StreamMarks& marks : streams_) {
      int64_t& reached = recorded_to[marks.stream];
      const auto advance = [&](const device::Timestamp& to) -> Status {
        DC_ASSIGN_OR_RETURN(const int64_t before, common.since(to));
        reached = std::max(reached, common_ns - before);
        return base::ok_status();
      };
      DC_RETURN_IF_ERROR(advance(*marks.begin));
      for (const Mark& mark : marks.marks) {
        const int64_t begin = reached;
        if (mark.end != nullptr) DC_RETURN_IF_ERROR(advance(*mark.end));
        if (mark.instruction < 0) continue;
        recorder.record(static_cast<int32_t>(marks.stream), program_, mark.instruction, run_, begin,
                        reached);
      }
    }
    return base::ok_status();
  }

 private:
  struct Mark {
    int32_t instruction = -1;                // -1: takes time that is not recorded
    std::unique_ptr<device::Timestamp> end;  // null: takes none
  };
  struct StreamMarks {
    size_t stream = 0;
    std::unique_ptr<device::Timestamp> begin;
    std::vector<Mark> marks;  // in the order of the stream's commands
    size_t written = 0;       // so many were gone through
    const device::Timestamp& last() const {
      for (auto mark = marks.rbegin(); mark != marks.rend(); ++mark)
        if (mark->end != nullptr) return *mark->end;
      return *begin;
    }
  };

  int32_t program_;
  uint32_t run_ = 0;
  bool is_under_way_ = false;
  std::vector<StreamMarks> streams_;
};

StreamTrace::StreamTrace(BoundPlan& bound, TraceRecorder& recorder)
    : bound_(bound),
      recorder_(recorder),
      programs_(bound.programs().size()),
      recorded_to_(bound.stream_count(), 0),
      common_(bound.device().make_timestamp()),
      attempt_(bound.device().make_timestamp()) {}
StreamTrace::~StreamTrace() = default;

StreamTrace::Run& StreamTrace::unused(ProgramRuns& runs, int32_t program) {
  for (const std::unique_ptr<Run>& run : runs.issued)
    if (!run->is_under_way()) return *run;
  return *runs.issued.emplace_back(std::make_unique<Run>(bound_, program, false));
}

void StreamTrace::begin_run(int32_t program, uint32_t run, bool as_graph) {
  ProgramRuns& runs = programs_[static_cast<size_t>(program)];
  if (as_graph && runs.in_graph == nullptr)
    runs.in_graph = std::make_unique<Run>(bound_, program, true);
  current_ = as_graph ? runs.in_graph.get() : &unused(runs, program);
  DC_CHECK(!current_->is_under_way());
  current_->begin(run);
  under_way_.push_back(current_);
}

void StreamTrace::write_begin() { current_->write_begin(bound_); }

void StreamTrace::command_issued(size_t stream, const Command& command) {
  if (command.kind != CommandKind::Signal) current_->write_end(bound_, stream);
}

Status StreamTrace::relate_clocks() {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < kAttempts; ++i) {
    const int64_t before = TraceRecorder::now();
    bound_.stream(0).write_timestamp(*attempt_);
    DC_RETURN_IF_ERROR(bound_.stream(0).drain());
    const int64_t took = TraceRecorder::now() - before;
    if (took >= least) continue;
    least = took;
    common_ns_ = before + took / 2;
    std::swap(common_, attempt_);
  }
  return base::ok_status();
}

Status StreamTrace::record_finished() {
  if (under_way_.empty()) return base::ok_status();
  DC_RETURN_IF_ERROR(relate_clocks());
  auto next = under_way_.begin();
  for (; next != under_way_.end() && (*next)->is_over(); ++next)
    DC_RETURN_IF_ERROR((*next)->record(*common_, common_ns_, recorder_, recorded_to_));
  under_way_.erase(under_way_.begin(), next);
  return base::ok_status();
}

}  // namespace dc::runtime::exec
