// --eval-every: the loss on validation data between steps, by the plan's evaluation.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/exec/executor.h"
#include "runtime/kernel/host_transfer.h"
#include "runtime/train/data.h"
#include "runtime/train/train.h"
#include "src/base/status.h"

namespace dc::runtime::train {

struct EvaluationResult {
  // Mean over the micro-batches of each one's own loss, in f64 in their order; equal on all ranks.
  double loss = 0;
  int64_t samples = 0;
  double ms = 0;       // of this rank, data reading included
  comm::Traffic wire;  // that this rank sent
  exec::Executor::CommunicationTime communication;
  bool stopped = false;  // broken off: a signal, or `problem`; the figures mean nothing
  base::Status problem;  // data that a rank could not read; not ok on any rank then
};

// Micro-batch m holds samples [m x rows, (m + 1) x rows) of the validation data and is evaluated by
// rank m mod world: the same samples every time, in an order that does not depend on the number of
// ranks. Samples behind the last whole micro-batch are not read.
class Evaluation {
 public:
  // Opens the data. Mismatch (DC6871) if the plan has no evaluation; BadInput (DC6872) if the data
  // has fewer micro-batches than wanted. Null without --eval-every.
  static base::Result<std::unique_ptr<Evaluation>> open(const plan::Plan& plan, int rank,
                                                        const TrainOptions& options);

  // Collective, between two steps, when data is read and memory bound. Leaves the state of the
  // training and its data as they were.
  base::Result<EvaluationResult> run(exec::Executor& executor, comm::Communicator& control);
  // After `steps` steps in all, of `last`.
  bool is_due(int64_t steps, int64_t last) const { return steps % every_ == 0 || steps == last; }

 private:
  Evaluation(const plan::Plan& plan, const TrainOptions& options, std::unique_ptr<DataSource> data)
      : plan_(plan),
        variant_(*plan.variant(plan::Purpose::Evaluate)),
        every_(options.eval_every),
        data_(std::move(data)) {}
  // The host's copies of the inputs and of the loss.
  struct Copies {
    Copies(const plan::Plan& plan, const plan::Variant& variant, const exec::Executor& executor);
    std::vector<kernel::HostCopy> inputs;
    std::vector<kernel::BoundTensor> to_fill;  // the same, as the data source takes them
    kernel::HostCopy loss_sum;
  };
  base::Status count(const TrainOptions& options);
  base::Status run_round(int64_t micro_batch, Copies& copies, exec::Executor& executor,
                         comm::Communicator& control, EvaluationResult& result);
  base::Result<double> mean(const std::vector<double>& mine, comm::Communicator& control) const;

  const plan::Plan& plan_;
  const plan::Variant& variant_;
  int64_t every_ = 1, micro_batches_ = 0, rows_ = 1;
  std::unique_ptr<DataSource> data_;
};

}  // namespace dc::runtime::train
