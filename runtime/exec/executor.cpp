#include "runtime/exec/executor.h"

#include <map>

#include "runtime/exec/issuer.h"
#include "runtime/exec/program_times.h"

namespace dc::runtime::exec {
namespace {

using base::Status;

// Who issues to the streams of the plan's device.
std::unique_ptr<Issuer> make_issuer(BoundPlan& bound, const ExecutorOptions& options) {
  switch (bound.device().kind()) {
    case base::DeviceKind::Cpu:
    case base::DeviceKind::Checked:
      return make_thread_issuer(bound, options.trace);
    case base::DeviceKind::Cuda:
      return make_stream_issuer(bound, options.graphs, options.trace);
  }
  return nullptr;
}

class PlanExecutor final : public Executor {
 public:
  PlanExecutor(std::unique_ptr<BoundPlan> bound, const ExecutorOptions& options)
      : bound_(std::move(bound)), issuer_(make_issuer(*bound_, options)) {}

  kernel::BoundTensor tensor(int32_t id) const override { return bound_->tensor(id); }
  device::Device& device() const override { return bound_->device(); }
  void observe(Observer observer) override { issuer_->observe(std::move(observer)); }
  device::Stream& compute() const override { return bound_->stream(0); }
  void at_end_of_runs(AtEnd at_end) override { issuer_->at_end_of_runs(std::move(at_end)); }
  Status run(int32_t program, const Meanwhile& meanwhile) override {
    return issuer_->run(program, meanwhile);
  }
  base::Result<std::vector<int64_t>> time(int32_t program) override {
    DC_ASSIGN_OR_RETURN(const ProgramTimes* times, timed(program, ProgramTimes::Of::Instructions));
    return times->read(bound_->plan().programs[static_cast<size_t>(program)].instructions.size());
  }
  base::Result<int64_t> time_program(int32_t program) override {
    DC_ASSIGN_OR_RETURN(const ProgramTimes* times, timed(program, ProgramTimes::Of::Program));
    return times->read_program();
  }
  Status finish() override { return issuer_->finish(); }
  comm::Traffic traffic() const override { return bound_->traffic(); }
  CommunicationTime communication_time() const override { return issuer_->communication_time(); }
  int64_t waited_ns() const override { return issuer_->waited_ns(); }
  ProviderCounts counts() const override { return bound_->counts(); }
  const kernel::MissingScratch& missing_scratch() const override {
    return bound_->missing_scratch();
  }

 private:
  base::Result<const ProgramTimes*> timed(int32_t program, ProgramTimes::Of of) {
    std::unique_ptr<ProgramTimes>& times = times_[{program, of}];
    if (times == nullptr) times = std::make_unique<ProgramTimes>(device(), of);
    issuer_->write_times(times.get());
    Status status = issuer_->run(program, {});
    issuer_->write_times(nullptr);
    DC_RETURN_IF_ERROR(std::move(status));
    DC_RETURN_IF_ERROR(issuer_->finish());
    return times.get();
  }

  std::unique_ptr<BoundPlan> bound_;
  // Of programs that were timed.
  std::map<std::pair<int32_t, ProgramTimes::Of>, std::unique_ptr<ProgramTimes>> times_;
  std::unique_ptr<Issuer> issuer_;  // ends before what it issues
};

}  // namespace

base::Result<std::unique_ptr<Executor>> Executor::prepare(const plan::Plan& plan,
                                                          comm::ProcessGroup& job, comm::Slab slab,
                                                          ExecutorOptions options) {
  DC_ASSIGN_OR_RETURN(auto bound,
                      BoundPlan::bind(plan, job, slab, options.outside, options.poison));
  if (options.poison) {
    bound->poison_transients();
    DC_RETURN_IF_ERROR(bound->stream(0).drain());  // before the host uploads anything
  }
  return std::unique_ptr<Executor>(std::make_unique<PlanExecutor>(std::move(bound), options));
}

}  // namespace dc::runtime::exec
