// What a run prints: data on stdout, a progress line on a terminal's stderr. Rank 0 only.
#pragma once

#include <cstdint>

#include "runtime/kernel/kernel.h"
#include "runtime/train/metrics.h"

namespace dc::runtime::train {

class Report {
 public:
  // Silent on other ranks.
  Report(bool rank_zero, int64_t steps);
  ~Report();
  void start(const RunFacts& facts) const;  // the first line
  // A warning on stderr if a plan that was compiled with a profile of CPUs runs on a GPU.
  void other_device(const plan::Plan& plan, base::DeviceKind runs_on) const;
  // A warning on stderr if kernels need more scratch than the plan has; `arena`: the plan's bytes.
  void missing_scratch(const kernel::MissingScratch& missing, int64_t arena) const;
  void step(const StepFacts& facts);
  void evaluation(const EvaluationFacts& facts) const;
  void hosts(const AcrossHosts& sent) const;  // what each host sent to others
  // A note on stderr where the checkpoint is of the last step asked for, or a later one.
  void nothing_to_do(int64_t step) const;
  void finish();  // where the time of the steps went, if any communicated

 private:
  void clear() const;
  bool prints_, progress_;
  int64_t steps_;
  double spent_ms_ = 0, collective_ms_ = 0, exposed_ms_ = 0;
  int64_t done_ = 0;
};

}  // namespace dc::runtime::train
