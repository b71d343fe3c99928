// Loop: the steps of a run, on a prepared executor.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/exec/executor.h"
#include "runtime/kernel/host_transfer.h"
#include "runtime/train/data.h"
#include "runtime/train/metrics.h"
#include "runtime/train/schedule.h"

namespace dc::runtime::train {

// What the update left in its scalars.
struct StepResult {
  double loss = 0, norm = 0;
  bool finite = true;
  int stop_requests = 0;  // ranks that were asked to stop
};

class Loop {
 public:
  // BadInput when the plan lacks the tensors that host and update talk through.
  static base::Result<Loop> create(const plan::Plan& plan, exec::Executor& executor,
                                   DataSource& data, const RunSettings& settings, int rank);

  // What the host may do for the next micro-batch while a device works: nothing; fill its copies of
  // the inputs; or also issue their uploads, if nothing else runs before it.
  enum class Ahead { Nothing, Fill, Upload };
  // What else the host does while a device works on a micro-batch, the last one of the step or
  // another. The next micro-batch is that of the next step after the last one.
  using Meanwhile = std::function<Ahead(bool is_last)>;
  // Runs step `step` (0 for the first): every program with its inputs.
  // `stop`: this rank asks all to stop after this step, as a signal would.
  // `meanwhile` is called for each micro-batch, but never where the host's cores are the device.
  base::Status run(int64_t step, bool stop, const Meanwhile& meanwhile);
  StepResult result() const;  // of the last step

  // After a step that was not finite: "loss", or the first parameter in signature order whose
  // gradient is not. Equal on all ranks. Unavailable (69): the device failed.
  base::Result<std::string> culprit();
  // The parameters that were updated all the same, with " (in part)" where some ranks updated their
  // ranges; empty when nothing was applied. Unavailable (69): the device failed.
  base::Result<std::vector<std::string>> updated();

 private:
  // The host's copies of the tensors that host and update talk through.
  struct Copies {
    std::shared_ptr<kernel::HostCopy> scalars;  // the executor fills its first cells in each run
    kernel::HostCopy table;
  };
  Loop(const plan::Plan& plan, exec::Executor& executor, DataSource& data,
       const RunSettings& settings, int rank, Copies copies);
  // The host's copies of what a micro-batch is given.
  struct Batch {
    std::vector<kernel::HostCopy> inputs;      // in the order of the data request
    std::vector<kernel::BoundTensor> to_fill;  // the same, as the data source takes them
    std::vector<kernel::HostCopy> of_step;     // hyperparameters, loss sum: with its first one
    std::optional<kernel::HostCopy> rng;       // nothing when the plan draws nothing
    int64_t step = -1, micro_batch = -1;       // whose inputs are there; -1: none
    base::Status filled;
    bool is_uploaded = false;
  };
  base::Status add_copies(Batch& batch);
  void write_stop(bool stop);
  void fill(Batch& batch, int64_t step, int64_t micro_batch);
  void upload(Batch& batch);
  base::Status run_micro_batch(int64_t step, int64_t micro_batch, int32_t program,
                               const Meanwhile& meanwhile);
  const double* table_row(int64_t rank) const;
  bool updated_in_part(const plan::Parameter& parameter) const;

  const plan::Plan* plan_;
  exec::Executor* executor_;
  DataSource* data_;
  const RunSettings* settings_;
  int rank_;
  // In turns: those of a micro-batch may be on their way to the device while the next are made.
  std::array<Batch, 2> batches_;
  size_t batch_ = 0;                           // of the present micro-batch
  std::vector<kernel::HostCopy> loss_scales_;  // at most one
  Copies copies_;
  int64_t columns_ = 0;  // of the table
  int64_t trainable_ = 0;
};

int64_t tokens_per_step(
    const plan::Plan& plan);  // over all ranks; samples where there are no tokens

}  // namespace dc::runtime::train
