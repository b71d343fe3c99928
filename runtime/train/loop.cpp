#include "runtime/train/loop.h"

#include <cmath>

#include "runtime/kernel/elements.h"
#include "runtime/train/signals.h"
#include "src/base/step_scalars.h"

namespace dc::runtime {

using base::DType;
using base::ErrorKind;
using base::Result;
using base::Status;

namespace {

Status incomplete(const std::string& what) {
  return Status(ErrorKind::BadInput, "DC6541",
                "the plan's " + what + " is missing or has the wrong shape; compile it again");
}

// The data of a contiguous tensor of at least `elements` elements.
Result<void*> scalar_tensor(const plan::Plan& plan, const Executor& executor, int32_t id,
                            DType dtype, int64_t elements, const std::string& what) {
  if (id < 0 || static_cast<size_t>(id) >= plan.tensors.size()) return incomplete(what);
  const BoundTensor tensor = executor.tensor(id);
  const bool eight_bytes = base::byte_size(tensor.dtype) == base::byte_size(dtype);
  if (!eight_bytes || tensor.numel() < elements ||
      !ElementWalk(tensor.sizes, tensor.strides).contiguous()) {
    return incomplete(what);
  }
  return tensor.data;
}

}  // namespace

Loop::Loop(const plan::Plan& plan, Executor& executor, DataSource& data,
           const RunSettings& settings, int rank)
    : plan_(&plan), executor_(&executor), data_(&data), settings_(&settings), rank_(rank) {}

Result<Loop> Loop::create(const plan::Plan& plan, Executor& executor, DataSource& data,
                          const RunSettings& settings, int rank) {
  Loop loop(plan, executor, data, settings, rank);
  for (const plan::Parameter& parameter : plan.parameters) {
    loop.trainable_ = std::max<int64_t>(loop.trainable_, parameter.trainable_index + 1);
  }
  loop.columns_ = loop.trainable_ + base::kTableExtra;
  const auto bind = [&](int32_t id, int64_t elements, const char* what) {
    return scalar_tensor(plan, executor, id, DType::F64, elements, what);
  };
  DC_ASSIGN_OR_RETURN(void* slots, bind(plan.slots, slot_count(plan.optimizer), "slots"));
  DC_ASSIGN_OR_RETURN(void* scalars,
                      bind(plan.scalars, base::kScalarFinite + loop.trainable_, "scalars"));
  DC_ASSIGN_OR_RETURN(void* table, bind(plan.table, plan.world() * loop.columns_, "table"));
  DC_ASSIGN_OR_RETURN(void* loss_sum, bind(plan.loss_sum, 1, "loss sum"));
  loop.slots_ = static_cast<double*>(slots);
  loop.scalars_ = static_cast<double*>(scalars);
  loop.table_ = static_cast<double*>(table);
  loop.loss_sum_ = static_cast<double*>(loss_sum);
  if (plan.rng >= 0) {
    DC_ASSIGN_OR_RETURN(void* rng, scalar_tensor(plan, executor, plan.rng, DType::I64, 4, "rng"));
    loop.rng_ = static_cast<uint64_t*>(rng);
  }
  for (const plan::Input& input : plan.inputs) {
    const bool scale = input.role == plan::InputRole::LossScale;
    (scale ? loop.loss_scales_ : loop.inputs_).push_back(executor.tensor(input.tensor));
  }
  return loop;
}

void Loop::write_scalars(int64_t step, bool stop) {
  fill_slots(*settings_, step + 1, int64_t{plan_->world()} * plan_->accumulation, slots_);
  *loss_sum_ = 0;
  double* own = table_ + rank_ * columns_;
  own[trainable_ + base::kTableStop] = stop || stop_requested() ? 1 : 0;
}

Status Loop::run_micro_batch(int64_t step, int64_t micro_batch, int32_t program) {
  DC_RETURN_IF_ERROR(data_->fill(step, micro_batch, inputs_));
  if (rng_) {
    rng_[base::kRngSeed] = settings_->optimizer.seed;
    rng_[base::kRngStep] = static_cast<uint64_t>(step);
    rng_[base::kRngMicroBatch] = static_cast<uint64_t>(micro_batch);
    rng_[base::kRngRank] = static_cast<uint64_t>(rank_);
  }
  for (const BoundTensor& tensor : loss_scales_) {
    store_real(tensor.dtype, tensor.data, settings_->loss_scale);
  }
  return executor_->run(program);
}

Status Loop::run(int64_t step, bool stop) {
  write_scalars(step, stop);
  int64_t micro_batch = 0;
  for (const plan::ProgramRun& run : plan_->step) {
    for (int32_t i = 0; i < run.repeat; ++i) {
      Status status = run_micro_batch(step, micro_batch, run.program);
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
  StepResult result;
  result.loss = scalars_[base::kScalarLoss];
  result.norm = scalars_[base::kScalarNorm];
  result.finite = scalars_[base::kScalarAllFinite] > 0;
  result.stop_requests = static_cast<int>(scalars_[base::kScalarStop]);
  return result;
}

const double* Loop::table_row(int64_t rank) const { return table_ + rank * columns_; }

std::string Loop::culprit() const {
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

std::vector<std::string> Loop::updated() const {
  std::vector<std::string> names;
  for (const plan::Parameter& parameter : plan_->parameters) {
    if (parameter.trainable_index < 0) continue;
    if (scalars_[base::kScalarFinite + parameter.trainable_index] > 0) {
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

}  // namespace dc::runtime
