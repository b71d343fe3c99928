#include <vector>

#include "runtime/exec/issuer.h"
#include "runtime/exec/run_failure.h"

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

class StreamIssuer final : public Issuer {
 public:
  explicit StreamIssuer(BoundPlan& bound) : bound_(bound) {
    for (const BoundProgram& program : bound.programs()) programs_.push_back(in_order(program));
  }
  ~StreamIssuer() override {
    bound_.cancel_waits();
    for (size_t s = 0; s < bound_.stream_count(); ++s) (void)bound_.stream(s).drain();
  }

  void observe(Executor::Observer observer) override { observer_ = std::move(observer); }

  Status run(int32_t program) override {
    if (failure_.happened()) return failure_.status();
    BoundProgram& what = bound_.program(program);
    ++what.runs;
    for (const Issue& issue : programs_[static_cast<size_t>(program)]) {
      Status status = one(issue, program, what.runs);
      if (!status.ok()) return fail(std::move(status), program, issue.command);
    }
    return what.leaves_running ? base::ok_status() : finish();
  }

  Status finish() override {
    for (size_t s = 0; s < bound_.stream_count() && !failure_.happened(); ++s) {
      Status status = bound_.stream(s).drain();
      if (!status.ok()) return fail(std::move(status));
    }
    return failure_.status();
  }

  // One rank: nothing to wait for.
  Executor::CommunicationTime communication_time() const override { return {}; }

 private:
  Status one(const Issue& issue, int32_t program, uint32_t run) {
    device::Stream& stream = bound_.stream(issue.stream);
    DC_RETURN_IF_ERROR(bound_.issue(issue.command, program, stream, run));
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
  RunFailure failure_;
  std::vector<std::vector<Issue>> programs_;
};

}  // namespace

std::unique_ptr<Issuer> make_stream_issuer(BoundPlan& bound) {
  return std::make_unique<StreamIssuer>(bound);
}

}  // namespace dc::runtime::exec
