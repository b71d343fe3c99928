#include "runtime/train/evaluation.h"

#include <chrono>
#include <utility>

#include "runtime/comm/agreement.h"
#include "runtime/train/signals.h"

namespace dc::runtime::train {

using base::ErrorKind;
using base::Result;
using base::Status;
using Clock = std::chrono::steady_clock;

Evaluation::Copies::Copies(const plan::Plan& plan, const plan::Variant& variant,
                           const exec::Executor& executor)
    : loss_sum(executor.device(), executor.tensor(plan.loss_sum)) {
  for (const plan::Input& input : variant.inputs) {
    inputs.emplace_back(executor.device(), executor.tensor(input.tensor));
    to_fill.push_back(inputs.back().tensor());
  }
}

Result<std::unique_ptr<Evaluation>> Evaluation::open(const plan::Plan& plan, int rank,
                                                     const TrainOptions& options) {
  if (options.eval_every == 0) return std::unique_ptr<Evaluation>();
  const plan::Variant* variant = plan.variant(plan::Purpose::Evaluate);
  if (variant == nullptr) {
    return Status(ErrorKind::Mismatch, "DC6871",
                  "--eval-every needs a plan with an evaluation, and this one has none; export the "
                  "model with eval=True (export.py --eval) and compile it again");
  }
  // Micro-batches are counted as the steps of one rank.
  DataRequest request = DataRequest::of(plan, variant->inputs, rank, std::nullopt);
  request.shape.accumulation = request.shape.world = 1;
  request.shape.rank = 0;
  auto data = DataSource::open(options.eval_data, request);
  if (!data.ok()) return std::move(data).status().add_context("in the data of --eval-data");
  auto evaluation =
      std::unique_ptr<Evaluation>(new Evaluation(plan, options, std::move(data).value()));
  evaluation->rows_ = request.shape.rows;
  DC_RETURN_IF_ERROR(evaluation->count(options));
  return evaluation;
}

Status Evaluation::count(const TrainOptions& options) {
  const int64_t there = data_->steps_per_epoch();
  if (there == 0 && options.eval_batches == 0) {
    return Status(ErrorKind::Usage, "DC6873",
                  "--eval-data synthetic never ends; give --eval-batches M, the number of "
                  "micro-batches to evaluate");
  }
  micro_batches_ = options.eval_batches > 0 ? options.eval_batches : there;
  if (there == 0 || micro_batches_ <= there) return base::ok_status();
  return Status(ErrorKind::BadInput, "DC6872",
                "--eval-batches asks for " + std::to_string(micro_batches_) +
                    " micro-batches, and --eval-data has " + std::to_string(there) + " of " +
                    std::to_string(rows_) + " samples each; ask for fewer or give more data");
}

// One micro-batch on each rank; those that have none left evaluate the first again, for their part
// in collectives.
Status Evaluation::run_round(int64_t micro_batch, Copies& copies, exec::Executor& executor,
                             comm::Communicator& control, EvaluationResult& result) {
  const int64_t own = micro_batch < micro_batches_ ? micro_batch : 0;
  Status read = data_->check(own);
  if (read.ok()) read = data_->fill(own, 0, copies.to_fill);
  DC_ASSIGN_OR_RETURN(result.stopped, comm::any_rank(control, !read.ok() || stop_requested()));
  if (result.stopped) {
    if (!read.ok()) read.add_context("in the data of --eval-data");
    result.problem = comm::agree(control, std::move(read), "reading its evaluation data");
    return base::ok_status();
  }
  for (const kernel::HostCopy& input : copies.inputs) DC_RETURN_IF_ERROR(input.upload());
  *copies.loss_sum.as<double>() = 0;
  DC_RETURN_IF_ERROR(copies.loss_sum.upload());
  for (const plan::ProgramRun& run : variant_.step) {
    for (int32_t i = 0; i < run.repeat; ++i) DC_RETURN_IF_ERROR(executor.run(run.program));
  }
  return copies.loss_sum.download();
}

Result<double> Evaluation::mean(const std::vector<double>& mine,
                                comm::Communicator& control) const {
  const size_t rounds = mine.size();
  const auto world = static_cast<size_t>(control.size());
  std::vector<double> all(rounds * world);
  DC_RETURN_IF_ERROR(
      control.exchange(mine.data(), static_cast<int64_t>(rounds * sizeof(double)), all.data()));
  double sum = 0;
  for (size_t m = 0; m < static_cast<size_t>(micro_batches_); ++m) {
    sum += all[m % world * rounds + m / world];
  }
  return sum / static_cast<double>(micro_batches_);
}

Result<EvaluationResult> Evaluation::run(exec::Executor& executor, comm::Communicator& control) {
  EvaluationResult result;
  const auto start = Clock::now();
  DC_RETURN_IF_ERROR(executor.finish());  // what the last step sends is in the state now
  const comm::Traffic sent = executor.traffic();
  const exec::Executor::CommunicationTime before = executor.communication_time();
  const int64_t world = control.size();
  Copies copies(plan_, variant_, executor);
  std::vector<double> losses;
  for (int64_t first = 0; first < micro_batches_; first += world) {
    DC_RETURN_IF_ERROR(run_round(first + control.rank().v, copies, executor, control, result));
    if (result.stopped) return result;
    losses.push_back(*copies.loss_sum.as<double>());
  }
  DC_ASSIGN_OR_RETURN(result.loss, mean(losses, control));
  result.samples = micro_batches_ * rows_;
  result.wire = executor.traffic() - sent;
  const exec::Executor::CommunicationTime after = executor.communication_time();
  result.communication = {after.collective_ns - before.collective_ns,
                          after.exposed_ns - before.exposed_ns};
  result.ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  return result;
}

}  // namespace dc::runtime::train
