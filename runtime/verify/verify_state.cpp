// Level 2, the tables around the programs: state, parameters, inputs, step scalars, optimizer,
// prediction.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "runtime/plan/bad_plan.h"
#include "runtime/plan/describe.h"
#include "runtime/plan/extent.h"
#include "runtime/plan/mesh.h"
#include "runtime/plan/state_entries.h"
#include "runtime/verify/checks.h"
#include "src/base/checked.h"
#include "src/base/shape.h"
#include "src/base/step_scalars.h"

namespace dc::runtime::verify {
namespace {

using base::Status;

const plan::Tensor& tensor_at(const plan::Plan& plan, int32_t id) {
  return plan.tensors[static_cast<size_t>(id)];
}
bool is_persistent(const plan::Plan& plan, int32_t tensor) {
  return plan.slices[static_cast<size_t>(tensor_at(plan, tensor).slice)].program < 0;
}
bool is_on_device(const plan::Plan& plan, int32_t tensor) {
  const plan::Slice& slice = plan.slices[static_cast<size_t>(tensor_at(plan, tensor).slice)];
  return slice.space == plan::Space::Device;
}
int64_t trainable_count(const plan::Plan& plan) {
  return std::count_if(plan.parameters.begin(), plan.parameters.end(),
                       [](const plan::Parameter& p) { return p.trainable; });
}

// Empty if the parameter agrees with its gradient and its place among the trainable ones.
// `shards`: ranks that its shards are spread over.
std::string parameter_mismatch(const plan::Plan& plan, const plan::Parameter& p,
                               int64_t trainable_before, int32_t shards) {
  const auto count = plan::element_count(p.sizes);
  const bool negative =
      std::any_of(p.sizes.begin(), p.sizes.end(), [](int64_t v) { return v < 0; });
  if (!count || negative) return "has an impossible size";
  const auto padded = base::checked_mul(p.shard, shards);
  if (p.shard < 0 || !padded || *padded < *count) {
    return "has " + std::to_string(*count) + " elements, more than its shards of " +
           std::to_string(p.shard);
  }
  if (!p.record.entry.empty() &&
      (p.record.sizes.size() != p.record.strides.size() ||
       plan::element_count(p.record.sizes) != count || p.record.offset < 0)) {
    return "does not fit its archive record";
  }
  if (!p.trainable) {
    const bool clean = p.trainable_index == -1 && p.gradient == -1 && p.gradient_ready == -1;
    return clean ? "" : "is frozen and has a gradient";
  }
  if (p.trainable_index != trainable_before) return "has the wrong place among the trainable ones";
  if (p.gradient < 0 || p.gradient_ready < 0) return "is trainable and has no gradient";
  const plan::Tensor& gradient = tensor_at(plan, p.gradient);
  const int64_t elements = base::numel(gradient.sizes);
  if (!base::is_floating(gradient.dtype) || (elements != *count && elements != p.shard)) {
    return "has a gradient that is neither its whole nor its shard in a floating type";
  }
  const plan::Slice& slice = plan.slices[static_cast<size_t>(gradient.slice)];
  if (slice.space != plan::Space::Device) return "has a gradient outside the device";
  const bool alive =
      slice.program < 0 || (slice.program == plan.step.back().program &&
                            slice.first <= p.gradient_ready && p.gradient_ready <= slice.last);
  return alive ? "" : "has a gradient that is not live when it is said to be ready";
}

Status check_parameters(const plan::Plan& plan) {
  int64_t trainable = 0;
  const plan::ParameterStates states(plan);
  for (size_t i = 0; i < plan.parameters.size(); ++i) {
    const plan::Parameter& p = plan.parameters[i];
    const int32_t shards = plan::group_size(plan, states.shard_axes(plan, i));
    const std::string wrong = parameter_mismatch(plan, p, trainable, shards);
    if (!wrong.empty()) return plan::bad_plan("DC3232", "parameter '" + p.fqn + "' " + wrong);
    trainable += p.trainable;
  }
  return {};
}

Status check_step_tensor(const plan::Plan& plan, const char* what, int32_t id, base::DType dtype,
                         int64_t count) {
  const std::string who = std::string("step scalars '") + what + "' ";
  if (id < 0) return plan::bad_plan("DC3233", who + "are missing");
  const plan::Tensor& tensor = tensor_at(plan, id);
  if (tensor.dtype != dtype || base::numel(tensor.sizes) != count || !plan::is_contiguous(tensor)) {
    return plan::bad_plan("DC3233", who + "are " + std::string(base::name(tensor.dtype)) + "[" +
                                        std::to_string(base::numel(tensor.sizes)) + "], not " +
                                        std::string(base::name(dtype)) + "[" +
                                        std::to_string(count) + "]");
  }
  if (!is_persistent(plan, id)) return plan::bad_plan("DC3233", who + "do not keep their memory");
  if (!is_on_device(plan, id)) return plan::bad_plan("DC3233", who + "lie outside the device");
  return {};
}

Status check_step_tensors(const plan::Plan& plan) {
  const int64_t trainable = trainable_count(plan);
  const auto groups = static_cast<int64_t>(plan.optimizer.groups.size());
  DC_RETURN_IF_ERROR(check_step_tensor(plan, "hyperparameters", plan.hyperparameters,
                                       base::DType::F64,
                                       base::kHyperGroups + base::kHyperPerGroup * groups));
  DC_RETURN_IF_ERROR(
      check_step_tensor(plan, "rng", plan.rng, base::DType::I64, base::kRngRank + 1));
  DC_RETURN_IF_ERROR(check_step_tensor(plan, "scalars", plan.scalars, base::DType::F64,
                                       base::kScalarFinite + trainable));
  DC_RETURN_IF_ERROR(check_step_tensor(plan, "table", plan.table, base::DType::F64,
                                       plan.world() * (trainable + base::kTableExtra)));
  return check_step_tensor(plan, "loss_sum", plan.loss_sum, base::DType::F64, 1);
}

// Empty if the input's dtype, size and range suit its role.
std::string input_mismatch(const plan::Plan& plan, const plan::Input& input) {
  const plan::Tensor& tensor = tensor_at(plan, input.tensor);
  const plan::Slice& slice = plan.slices[static_cast<size_t>(tensor.slice)];
  if (slice.program >= 0 && slice.first != 0) return "is filled before its memory is its own";
  if (slice.space != plan::Space::Device) return "lies outside the device";
  if (!plan::is_contiguous(tensor)) return "is not contiguous";
  if (!std::isfinite(input.low) || !std::isfinite(input.high)) return "has no finite range";
  if (input.next && input.role != plan::InputRole::Labels) return "holds next tokens but no labels";
  switch (input.role) {
    case plan::InputRole::Tokens:
    case plan::InputRole::Labels:
    case plan::InputRole::Positions:
    case plan::InputRole::Class:
      return base::is_floating(tensor.dtype) ? "is not of an integer type" : "";
    case plan::InputRole::Float:
    case plan::InputRole::LossScale:
      if (!base::is_floating(tensor.dtype)) return "is not of a floating type";
      return input.role == plan::InputRole::LossScale && base::numel(tensor.sizes) != 1
                 ? "is not one number"
                 : "";
    case plan::InputRole::Mask:
      return "";
  }
  return "";
}

Status check_inputs(const plan::Plan& plan, const std::vector<plan::Input>& inputs) {
  for (const plan::Input& input : inputs) {
    const std::string wrong = input_mismatch(plan, input);
    if (!wrong.empty()) return plan::bad_plan("DC3234", "input '" + input.name + "' " + wrong);
  }
  return {};
}

Status check_prediction(const plan::Prediction& p) {
  // Sums and percentages of such numbers do not overflow: two years in ns, 64 PiB.
  constexpr int64_t kMost = int64_t{1} << 56;
  const auto makes_sense = [](int64_t v) { return v >= 0 && v <= kMost; };
  const auto all_make_sense = [&](const auto& numbers) {
    return std::all_of(numbers.begin(), numbers.end(), makes_sense);
  };
  const std::array scalars = {
      p.compute_ns, p.communication_ns, p.step_ns,         p.peak_bytes,    p.live_bytes,
      p.copy_ns,    p.copied_out_bytes, p.copied_in_bytes, p.contention_ns, p.without_norm_ns,
      p.learned_ns, p.closed_form_ns,   p.library_bytes};
  if (!all_make_sense(scalars) || !all_make_sense(p.wire_bytes) || !all_make_sense(p.bounds_ns) ||
      !all_make_sense(p.figures_ns)) {
    return plan::bad_plan("DC3236", "a prediction has a number that is negative or above 2^56");
  }
  return {};
}

Status check_optimizer(const plan::Plan& plan) {
  const plan::Optimizer& o = plan.optimizer;
  if (o.groups.empty()) return plan::bad_plan("DC3235", "the optimizer has no groups");
  for (const plan::OptimizerGroup& g : o.groups) {
    for (double v : {g.lr, g.weight_decay, g.beta1, g.beta2, g.eps, g.momentum, g.dampening}) {
      if (!std::isfinite(v)) {
        return plan::bad_plan("DC3235",
                              "optimizer group '" + g.match + "' has a value that is not finite");
      }
    }
  }
  if (!std::isfinite(o.clip_norm) || !std::isfinite(o.final_lr_fraction) || o.warmup_steps < 0 ||
      o.total_steps < 0) {
    return plan::bad_plan("DC3235",
                          "the optimizer's clip value or schedule is not a sensible number");
  }
  return {};
}

// Ranges may differ in whether they are updated if and only if the plan has check_finite.
Status check_update_rule(const plan::Plan& plan) {
  bool permits = false;
  for (const plan::Program& program : plan.programs) {
    for (const plan::Instruction& in : program.instructions)
      permits = permits || in.op == "dc.check_finite";
  }
  if (permits == plan.updates_by_range) return {};
  return plan::bad_plan("DC3237",
                        permits ? "it permits updates by range and says that all or none happen"
                                : "it says that updates are permitted by range and permits none");
}

// A timeline computed from the durations is finite, and signals and waits take none.
Status check_durations(const plan::Plan& plan) {
  for (size_t p = 0; p < plan.programs.size(); ++p) {
    const plan::Program& program = plan.programs[p];
    std::optional<int64_t> sum = 0;
    for (size_t i = 0; i < program.duration_ns.size(); ++i) {
      const int64_t duration = program.duration_ns[i];
      const plan::InstructionKind kind = program.instructions[i].kind;
      if (!program.duration_origins.empty() &&
          program.duration_origins[i] >= plan::kFigureOriginCount)
        return plan::bad_plan("DC3236", plan::describe_instruction(plan, static_cast<int32_t>(p),
                                                                   static_cast<int32_t>(i)) +
                                            " has a predicted duration of no known origin");
      const bool may_last =
          kind != plan::InstructionKind::Signal && kind != plan::InstructionKind::Wait;
      sum = base::checked_add(*sum, duration);
      if (duration >= 0 && (may_last || duration == 0) && sum) continue;
      return plan::bad_plan(
          "DC3236",
          plan::describe_instruction(plan, static_cast<int32_t>(p), static_cast<int32_t>(i)) +
              " has an impossible predicted duration of " + std::to_string(duration) + " ns");
    }
  }
  return {};
}

}  // namespace

Status check_state(const plan::Plan& plan) {
  DC_RETURN_IF_ERROR(check_parameters(plan));
  DC_RETURN_IF_ERROR(check_state_entries(plan));
  DC_RETURN_IF_ERROR(check_step_tensors(plan));
  DC_RETURN_IF_ERROR(check_inputs(plan, plan.inputs));
  DC_RETURN_IF_ERROR(check_prediction(plan.prediction));
  for (const plan::Variant& variant : plan.variants) {
    DC_RETURN_IF_ERROR(check_inputs(plan, variant.inputs));
    DC_RETURN_IF_ERROR(check_prediction(variant.prediction));
  }
  DC_RETURN_IF_ERROR(check_optimizer(plan));
  DC_RETURN_IF_ERROR(check_update_rule(plan));
  return check_durations(plan);
}

}  // namespace dc::runtime::verify
