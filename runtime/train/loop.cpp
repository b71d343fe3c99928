#include "runtime/train/loop.h"

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
  DC_ASSIGN_OR_RETURN(
      kernel::HostCopy hyperparameters,
      copy(plan.hyperparameters, hyperparameter_count(plan.optimizer), "hyperparameters"));
  DC_ASSIGN_OR_RETURN(kernel::HostCopy own_scalars,
                      copy(plan.scalars, base::kScalarFinite + trainable, "scalars"));
  // Runs may follow the loop.
  const auto scalars = std::make_shared<kernel::HostCopy>(std::move(own_scalars));
  executor.at_end_of_runs([scalars](device::Stream& compute) {
    scalars->download(compute, 0, base::kScalarFinite * kCell);
  });
  DC_ASSIGN_OR_RETURN(kernel::HostCopy table, copy(plan.table, plan.world() * columns, "table"));
  DC_ASSIGN_OR_RETURN(kernel::HostCopy loss_sum, copy(plan.loss_sum, 1, "loss sum"));
  Loop loop(plan, executor, data, settings, rank,
            {std::move(hyperparameters), scalars, std::move(table), std::move(loss_sum)});
  loop.columns_ = columns;
  loop.trainable_ = trainable;
  if (plan.rng >= 0) {
    DC_ASSIGN_OR_RETURN(kernel::HostCopy rng,
                        copy_of(plan, executor, plan.rng, DType::I64, 4, "rng"));
    loop.rng_ = std::move(rng);
  }
  for (const plan::Input& input : plan.inputs) {
    const kernel::BoundTensor tensor = executor.tensor(input.tensor);
    const auto add_copy = [&](std::vector<kernel::HostCopy>& to) -> Status {
      DC_ASSIGN_OR_RETURN(kernel::HostCopy own,
                          kernel::HostCopy::for_streams(executor.device(), tensor));
      to.push_back(std::move(own));
      return {};
    };
    if (input.role == plan::InputRole::LossScale) {
      DC_RETURN_IF_ERROR(add_copy(loop.loss_scales_));
      continue;
    }
    for (Batch& batch : loop.batches_) {
      // Where the host's cores are the device nothing is made ahead.
      if (&batch != loop.batches_.data() && !executor.device().works_beside_host()) continue;
      DC_RETURN_IF_ERROR(add_copy(batch.inputs));
      batch.to_fill.push_back(batch.inputs.back().tensor());
    }
  }
  return loop;
}

// What a step is given follows what it was given before on compute's stream: run() waits for it, so
// the host's copies may be written again.
void Loop::write_scalars(int64_t step, bool stop) {
  device::Stream& compute = executor_->compute();
  fill_hyperparameters(*settings_, step + 1, int64_t{plan_->world()} * plan_->accumulation,
                       copies_.hyperparameters.as<double>());
  copies_.hyperparameters.upload(compute, 0, copies_.hyperparameters.bytes());
  *copies_.loss_sum.as<double>() = 0;
  copies_.loss_sum.upload(compute, 0, kCell);
  const int64_t cell = rank_ * columns_ + trainable_ + base::kTableStop;
  copies_.table.as<double>()[cell] = stop || stop_requested() ? 1 : 0;
  copies_.table.upload(compute, cell * kCell, kCell);
}

void Loop::fill(Batch& batch, int64_t step, int64_t micro_batch) {
  batch.step = step;
  batch.micro_batch = micro_batch;
  batch.filled = data_->fill(step, micro_batch, batch.to_fill);
}

Status Loop::run_micro_batch(int64_t step, int64_t micro_batch, int32_t program,
                             const Meanwhile& meanwhile) {
  Batch& batch = batches_[batch_];
  if (batch.step != step || batch.micro_batch != micro_batch) fill(batch, step, micro_batch);
  DC_RETURN_IF_ERROR(batch.filled);
  device::Stream& compute = executor_->compute();
  for (const kernel::HostCopy& input : batch.inputs) input.upload(compute, 0, input.bytes());
  if (rng_) {
    auto* rng = rng_->as<uint64_t>();
    rng[base::kRngSeed] = settings_->optimizer.seed;
    rng[base::kRngStep] = static_cast<uint64_t>(step);
    rng[base::kRngMicroBatch] = static_cast<uint64_t>(micro_batch);
    rng[base::kRngRank] = static_cast<uint64_t>(rank_);
    rng_->upload(compute, 0, rng_->bytes());
  }
  for (const kernel::HostCopy& scale : loss_scales_) {
    kernel::store_real(scale.tensor().dtype, scale.tensor().data, settings_->loss_scale);
    scale.upload(compute, 0, scale.bytes());
  }
  const auto ahead = [&] {
    const bool is_last = micro_batch + 1 == plan_->accumulation;
    if (!meanwhile(is_last)) return;
    batch_ = 1 - batch_;
    fill(batches_[batch_], is_last ? step + 1 : step, is_last ? 0 : micro_batch + 1);
  };
  return executor_->run(program, std::ref(ahead));
}

Status Loop::run(int64_t step, bool stop, const Meanwhile& meanwhile) {
  write_scalars(step, stop);
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

std::string Loop::culprit() {
  copies_.table.download();
  for (int64_t rank = 0; rank < plan_->world(); ++rank) {
    if (!std::isfinite(table_row(rank)[trainable_ + base::kTableLoss])) return "the loss";
  }
  for (const plan::Parameter& parameter : plan_->parameters) {
    if (parameter.trainable_index < 0) continue;
    for (int64_t rank = 0; rank < plan_->world(); ++rank) {
      if (std::isfinite(table_row(rank)[parameter.trainable_index])) continue;
      return "the gradient of '" + parameter.fqn + "'";
    }
  }
  return "the gradient norm";
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

std::vector<std::string> Loop::updated() {
  copies_.scalars->download();
  copies_.table.download();
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
