#include "runtime/train/loop.h"

#include <algorithm>
#include <cmath>

#include "runtime/kernel/elements.h"
#include "runtime/train/signals.h"
#include "src/base/step_scalars.h"

namespace dc::runtime::train {

using base::DType;
using base::ErrorKind;
using base::Result;
using base::Status;

namespace {

Status incomplete(const std::string& what) {
  return Status(ErrorKind::BadInput, "DC6541",
                "the plan's " + what + " is missing or has the wrong shape; compile it again");
}

// A copy of a contiguous tensor of at least `elements` elements.
Result<kernel::HostCopy> copy_of(const plan::Plan& plan, const exec::Executor& executor, int32_t id,
                                 DType dtype, int64_t elements, const std::string& what) {
  if (id < 0 || static_cast<size_t>(id) >= plan.tensors.size()) return incomplete(what);
  const kernel::BoundTensor tensor = executor.tensor(id);
  const bool eight_bytes = base::byte_size(tensor.dtype) == base::byte_size(dtype);
  if (!eight_bytes || tensor.numel() < elements ||
      !kernel::ElementWalk(tensor.sizes, tensor.strides).contiguous()) {
    return incomplete(what);
  }
  return kernel::HostCopy::for_streams(executor.device(), tensor);
}

constexpr int64_t kCell = sizeof(double);

}  // namespace

Loop::Loop(const plan::Plan& plan, exec::Executor& executor, DataSource& data,
           const RunSettings& settings, int rank, Copies copies)
    : plan_(&plan),
      executor_(&executor),
      data_(&data),
      settings_(&settings),
      rank_(rank),
      copies_(std::move(copies)) {}

Result<Loop> Loop::create(const plan::Plan& plan, exec::Executor& executor, DataSource& data,
                          const RunSettings& settings, int rank) {
  int64_t trainable = 0;
  for (const plan::Parameter& parameter : plan.parameters) {
    trainable = std::max<int64_t>(trainable, parameter.trainable_index + 1);
  }
  const int64_t columns = trainable + base::kTableExtra;
  const auto copy = [&](int32_t id, int64_t elements, const char* what) {
    return copy_of(plan, executor, id, DType::F64, elements, what);
  };
  DC_ASSIGN_OR_RETURN(kernel::HostCopy own_scalars,
                      copy(plan.scalars, base::kScalarFinite + trainable, "scalars"));
  // Runs may follow the loop.
  const auto scalars = std::make_shared<kernel::HostCopy>(std::move(own_scalars));
  executor.at_end_of_runs([scalars](device::Stream& compute) {
    scalars->download(compute, 0, base::kScalarFinite * kCell);
  });
  DC_ASSIGN_OR_RETURN(kernel::HostCopy table, copy(plan.table, plan.world() * columns, "table"));
  Loop loop(plan, executor, data, settings, rank, {scalars, std::move(table)});
  loop.columns_ = columns;
  loop.trainable_ = trainable;
  for (Batch& batch : loop.batches_) {
    // Where the host's cores are the device nothing is made ahead.
    if (&batch != loop.batches_.data() && !executor.device().works_beside_host()) continue;
    DC_RETURN_IF_ERROR(loop.add_copies(batch));
  }
  for (const plan::Input& input : plan.inputs) {
    if (input.role != plan::InputRole::LossScale) continue;
    DC_ASSIGN_OR_RETURN(
        kernel::HostCopy scale,
        kernel::HostCopy::for_streams(executor.device(), executor.tensor(input.tensor)));
    kernel::store_real(scale.tensor().dtype, scale.tensor().data, settings.loss_scale);
    loop.loss_scales_.push_back(std::move(scale));
  }
  return loop;
}

Status Loop::add_copies(Batch& batch) {
  const auto copy = [&](int32_t id, DType dtype, int64_t elements, const char* what) {
    return copy_of(*plan_, *executor_, id, dtype, elements, what);
  };
  DC_ASSIGN_OR_RETURN(kernel::HostCopy hyperparameters,
                      copy(plan_->hyperparameters, DType::F64,
                           hyperparameter_count(plan_->optimizer), "hyperparameters"));
  batch.of_step.push_back(std::move(hyperparameters));
  DC_ASSIGN_OR_RETURN(kernel::HostCopy loss_sum, copy(plan_->loss_sum, DType::F64, 1, "loss sum"));
  batch.of_step.push_back(std::move(loss_sum));
  if (plan_->rng >= 0) {
    DC_ASSIGN_OR_RETURN(kernel::HostCopy rng, copy(plan_->rng, DType::I64, 4, "rng"));
    batch.rng = std::move(rng);
  }
  for (const plan::Input& input : plan_->inputs) {
    if (input.role == plan::InputRole::LossScale) continue;
    DC_ASSIGN_OR_RETURN(
        kernel::HostCopy own,
        kernel::HostCopy::for_streams(executor_->device(), executor_->tensor(input.tensor)));
    batch.inputs.push_back(std::move(own));
    batch.to_fill.push_back(batch.inputs.back().tensor());
  }
  return {};
}

// As late as it can be: a request counts for the step that it comes before.
void Loop::write_stop(bool stop) {
  const int64_t cell = rank_ * columns_ + trainable_ + base::kTableStop;
  copies_.table.as<double>()[cell] = stop || stop_requested() ? 1 : 0;
  copies_.table.upload(executor_->compute(), cell * kCell, kCell);
}

void Loop::fill(Batch& batch, int64_t step, int64_t micro_batch) {
  batch.step = step;
  batch.micro_batch = micro_batch;
  batch.is_uploaded = false;
  batch.filled = data_->fill(step, micro_batch, batch.to_fill);
  if (micro_batch == 0) {
    fill_hyperparameters(*settings_, step + 1, int64_t{plan_->world()} * plan_->accumulation,
                         batch.of_step.front().as<double>());
    *batch.of_step.back().as<double>() = 0;
  }
  if (!batch.rng) return;
  auto* rng = batch.rng->as<uint64_t>();
  rng[base::kRngSeed] = settings_->optimizer.seed;
  rng[base::kRngStep] = static_cast<uint64_t>(step);
  rng[base::kRngMicroBatch] = static_cast<uint64_t>(micro_batch);
  rng[base::kRngRank] = static_cast<uint64_t>(rank_);
}

// On compute's stream, so behind the micro-batch that was issued before. The host's copies may be
// written again when the run after it has ended.
void Loop::upload(Batch& batch) {
  device::Stream& compute = executor_->compute();
  const auto all_of = [&](const kernel::HostCopy& copy) { copy.upload(compute, 0, copy.bytes()); };
  if (batch.micro_batch == 0) std::ranges::for_each(batch.of_step, all_of);
  std::ranges::for_each(batch.inputs, all_of);
  if (batch.rng) all_of(*batch.rng);
  std::ranges::for_each(loss_scales_, all_of);
  batch.is_uploaded = true;
}

Status Loop::run_micro_batch(int64_t step, int64_t micro_batch, int32_t program,
                             const Meanwhile& meanwhile) {
  Batch& batch = batches_[batch_];
  if (batch.step != step || batch.micro_batch != micro_batch) fill(batch, step, micro_batch);
  DC_RETURN_IF_ERROR(batch.filled);
  if (!batch.is_uploaded) upload(batch);
  const auto ahead = [&] {
    const bool is_last = micro_batch + 1 == plan_->accumulation;
    const Ahead wanted = meanwhile(is_last);
    if (wanted == Ahead::Nothing) return;
    batch_ = 1 - batch_;
    Batch& next = batches_[batch_];
    fill(next, is_last ? step + 1 : step, is_last ? 0 : micro_batch + 1);
    if (wanted == Ahead::Upload && next.filled.ok()) upload(next);
  };
  Status ran = executor_->run(program, std::ref(ahead));
  batch.step = -1;  // what lies on the device is used up
  return ran;
}

Status Loop::run(int64_t step, bool stop, const Meanwhile& meanwhile) {
  write_stop(stop);
  int64_t micro_batch = 0;
  for (const plan::ProgramRun& run : plan_->step) {
    for (int32_t i = 0; i < run.repeat; ++i) {
      Status status = run_micro_batch(step, micro_batch, run.program, meanwhile);
      if (!status.ok()) {
        return std::move(status).add_context("in step " + std::to_string(step + 1) +
                                             ", micro-batch " + std::to_string(micro_batch + 1));
      }
      ++micro_batch;
    }
  }
  return base::ok_status();
}

StepResult Loop::result() const {
  const auto* scalars = copies_.scalars->as<double>();
  StepResult result;
  result.loss = scalars[base::kScalarLoss];
  result.norm = scalars[base::kScalarNorm];
  result.finite = scalars[base::kScalarAllFinite] > 0;
  result.stop_requests = static_cast<int>(scalars[base::kScalarStop]);
  return result;
}

const double* Loop::table_row(int64_t rank) const {
  return copies_.table.as<double>() + rank * columns_;
}

Result<std::string> Loop::culprit() {
  DC_RETURN_IF_ERROR(copies_.table.download());
  for (int64_t rank = 0; rank < plan_->world(); ++rank) {
    if (!std::isfinite(table_row(rank)[trainable_ + base::kTableLoss]))
      return std::string("the loss");
  }
  for (const plan::Parameter& parameter : plan_->parameters) {
    if (parameter.trainable_index < 0) continue;
    for (int64_t rank = 0; rank < plan_->world(); ++rank) {
      if (std::isfinite(table_row(rank)[parameter.trainable_index])) continue;
      return "the gradient of '" + parameter.fqn + "'";
    }
  }
  return std::string("the gradient norm");
}

// Where ranks decide for themselves, before the norm, a range may be finite although another is
// not.
bool Loop::updated_in_part(const plan::Parameter& parameter) const {
  bool one_may = false;
  for (int64_t rank = 0; rank < plan_->world(); ++rank) {
    if (!std::isfinite(table_row(rank)[trainable_ + base::kTableLoss])) return false;
    one_may = one_may || std::isfinite(table_row(rank)[parameter.trainable_index]);
  }
  return one_may && plan_->updates_by_range;
}

Result<std::vector<std::string>> Loop::updated() {
  DC_RETURN_IF_ERROR(copies_.scalars->download());
  DC_RETURN_IF_ERROR(copies_.table.download());
  const auto* scalars = copies_.scalars->as<double>();
  std::vector<std::string> names;
  for (const plan::Parameter& parameter : plan_->parameters) {
    if (parameter.trainable_index < 0) continue;
    if (scalars[base::kScalarFinite + parameter.trainable_index] > 0) {
      names.push_back(parameter.fqn);
    } else if (updated_in_part(parameter)) {
      names.push_back(parameter.fqn + " (in part)");
    }
  }
  return names;
}

int64_t tokens_per_step(const plan::Plan& plan) {
  int64_t per_micro_batch = 0, rows = 1;
  for (const plan::Input& input : plan.inputs) {
    const plan::Tensor& tensor = plan.tensors[static_cast<size_t>(input.tensor)];
    rows = std::max(rows, rows_of(input, tensor));
    if (input.role != plan::InputRole::Tokens) continue;
    int64_t count = 1;
    for (const int64_t size : tensor.sizes) count *= size;
    per_micro_batch += count;
  }
  if (per_micro_batch == 0) per_micro_batch = rows;
  return per_micro_batch * plan.world() * plan.accumulation;
}

}  // namespace dc::runtime::train
