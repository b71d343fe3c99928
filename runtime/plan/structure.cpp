// Level 1 on the structs: every id in its table, every count within sane limits. After this nothing
// can index out of bounds.
#include <algorithm>
#include <bit>
#include <limits>
#include <span>

#include "runtime/plan/bad_plan.h"
#include "runtime/plan/describe.h"
#include "runtime/plan/mesh.h"
#include "runtime/plan/names.h"
#include "runtime/plan/structure.h"
#include "src/base/step_scalars.h"

namespace dc::runtime::plan {
namespace {

using base::Status;

constexpr int32_t kMaxThreads = 1 << 12;
constexpr int32_t kMaxEvents = 1 << 26;
constexpr size_t kMaxStreams = 64;
constexpr size_t kMaxDims = 64;
constexpr size_t kMaxSpaces = base::kSpaceNames.size();
constexpr size_t kCollectiveKinds = base::kCollectiveKindNames.size();

bool is_id(int64_t id, size_t count) { return id >= 0 && static_cast<uint64_t>(id) < count; }
bool is_id_or_none(int64_t id, size_t count) { return id == -1 || is_id(id, count); }

Status bad_id(const std::string& who, const char* table, int64_t id, size_t count) {
  return bad_plan("DC3102", who + " names " + table + " " + std::to_string(id) +
                                ", and there are " + std::to_string(count));
}

Status check_instruction(const Plan& plan, const Instruction& in, const std::string& who) {
  const size_t tensors = plan.tensors.size();
  if (!is_id(in.stream, plan.streams.size())) {
    return bad_id(who, "stream", in.stream, plan.streams.size());
  }
  for (const Arg& arg : in.args) {
    if (arg.kind == ArgKind::Tensor && !is_id(arg.i, tensors)) {
      return bad_id(who, "tensor", arg.i, tensors);
    }
    if (arg.kind != ArgKind::Tensors) continue;
    for (int64_t id : arg.ints) {
      if (!is_id_or_none(id, tensors)) return bad_id(who, "tensor", id, tensors);
    }
  }
  for (int32_t id : in.outputs) {
    if (!is_id_or_none(id, tensors)) return bad_id(who, "tensor", id, tensors);
  }
  for (const auto* list : {&in.reads, &in.writes}) {
    for (int32_t id : *list) {
      if (!is_id(id, tensors)) return bad_id(who, "tensor", id, tensors);
    }
  }
  if (!is_id_or_none(in.scratch, plan.slices.size())) {
    return bad_id(who, "slice", in.scratch, plan.slices.size());
  }
  switch (in.kind) {
    case InstructionKind::Kernel:
      return {};
    case InstructionKind::Collective:
      if (!is_id(in.group, plan.groups.size())) {
        return bad_id(who, "group", in.group, plan.groups.size());
      }
      for (const CollectiveBuffer& b : in.buffers) {
        if (!is_id(b.input, tensors)) return bad_id(who, "tensor", b.input, tensors);
        if (!is_id(b.output, tensors)) return bad_id(who, "tensor", b.output, tensors);
      }
      return {};
    case InstructionKind::Copy:
      if (!is_id(in.src, tensors)) return bad_id(who, "tensor", in.src, tensors);
      if (!is_id(in.dst, tensors)) return bad_id(who, "tensor", in.dst, tensors);
      return {};
    case InstructionKind::Signal:
    case InstructionKind::Wait:
      if (!is_id(in.event, static_cast<size_t>(plan.events))) {
        return bad_id(who, "event", in.event, static_cast<size_t>(plan.events));
      }
      return {};
  }
  return {};
}

Status check_runs(const Plan& plan, const std::vector<ProgramRun>& runs, const std::string& who) {
  if (plan.programs.empty() || runs.empty()) {
    return bad_plan("DC3105", who + " has no program to run");
  }
  for (const ProgramRun& run : runs) {
    if (!is_id(run.program, plan.programs.size())) {
      return bad_id(who, "program", run.program, plan.programs.size());
    }
    if (run.repeat < 1) {
      return bad_plan("DC3105", who + " runs program '" +
                                    plan.programs[static_cast<size_t>(run.program)].name + "' " +
                                    std::to_string(run.repeat) + " times");
    }
  }
  return {};
}

std::string variant_label(const Variant& variant) {
  return "the variant for '" + std::string(name(variant.purpose)) + "'";
}

// Each run of the step's programs is one micro-batch: what feeds them counts on it.
Status check_micro_batches(const Plan& plan) {
  int64_t runs = 0;
  for (const ProgramRun& run : plan.step) runs += run.repeat;
  if (runs == plan.accumulation) return {};
  return bad_plan("DC3105", "the step runs " + std::to_string(runs) + " programs for " +
                                std::to_string(plan.accumulation) + " micro-batches");
}

Status check_programs(const Plan& plan) {
  DC_RETURN_IF_ERROR(check_runs(plan, plan.step, "the step"));
  DC_RETURN_IF_ERROR(check_micro_batches(plan));
  for (const Variant& variant : plan.variants) {
    DC_RETURN_IF_ERROR(check_runs(plan, variant.step, variant_label(variant)));
  }
  for (size_t p = 0; p < plan.programs.size(); ++p) {
    const auto& list = plan.programs[p].instructions;
    if (list.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
      return bad_plan("DC3103", "program '" + plan.programs[p].name + "' is too long");
    }
    const size_t durations = plan.programs[p].duration_ns.size();
    if (durations != 0 && durations != list.size()) {
      return bad_plan("DC3103", "program '" + plan.programs[p].name + "' has " +
                                    std::to_string(list.size()) + " instructions and " +
                                    std::to_string(durations) + " predicted durations");
    }
    const std::vector<uint8_t>& origins = plan.programs[p].duration_origins;
    if (!origins.empty() && origins.size() != durations) {
      return bad_plan("DC3103", "program '" + plan.programs[p].name + "' has " +
                                    std::to_string(durations) + " predicted durations and says " +
                                    "where " + std::to_string(origins.size()) + " come from");
    }
    for (size_t i = 0; i < list.size(); ++i) {
      const Status status = check_instruction(plan, list[i], "an instruction");
      if (status.ok()) continue;  // describe only on failure: a description per instruction costs
      return check_instruction(
          plan, list[i],
          describe_instruction(plan, static_cast<int32_t>(p), static_cast<int32_t>(i)));
    }
  }
  return {};
}

Status check_axes(const Plan& plan, uint32_t axes, const std::string& who) {
  if (axes == kAllAxes) return {};
  if (axes == 0) return bad_plan("DC3106", who + " spans no mesh axis");
  const int highest = 31 - std::countl_zero(axes);
  return is_id(highest, plan.mesh.size()) ? Status()
                                          : bad_id(who, "mesh axis", highest, plan.mesh.size());
}

Status check_mesh(const Plan& plan) {
  int64_t world = 1;
  for (const auto& [axis, size] : plan.mesh) {
    if (size < 1 || (world *= size) > kMaxWorld) {
      return bad_plan("DC3104", "mesh axis '" + axis + "' of size " + std::to_string(size) +
                                    " makes no sensible world");
    }
  }
  if (plan.mesh.empty() || plan.mesh.size() > kMaxMeshAxes) {
    return bad_plan("DC3104", "it has a mesh of " + std::to_string(plan.mesh.size()) + " axes");
  }
  if (plan.threads < 1 || plan.threads > kMaxThreads) {
    return bad_plan("DC3103", std::to_string(plan.threads) + " threads per rank");
  }
  if (plan.accumulation < 1 || plan.accumulation > base::kMaxMicroBatches) {
    return bad_plan("DC3103", std::to_string(plan.accumulation) + " micro-batches per step");
  }
  if (plan.events < 0 || plan.events > kMaxEvents) {
    return bad_plan("DC3103", std::to_string(plan.events) + " events");
  }
  if (plan.streams.empty()) return bad_plan("DC3103", "it has no compute stream");
  if (plan.streams.size() > kMaxStreams)
    return bad_plan("DC3103", "it has " + std::to_string(plan.streams.size()) + " streams");
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    const Group& group = plan.groups[i];
    const std::string who = "group " + std::to_string(i);
    if (!is_id_or_none(group.stream, plan.streams.size())) {
      return bad_id(who, "stream", group.stream, plan.streams.size());
    }
    DC_RETURN_IF_ERROR(check_axes(plan, group.axes, who));
  }
  return {};
}

Status check_sums(const Plan& plan) {
  if (plan.sums.levels.size() > plan.mesh.size()) {
    return bad_plan("DC3103", "gradients are summed on " + std::to_string(plan.sums.levels.size()) +
                                  " levels of a mesh of " + std::to_string(plan.mesh.size()) +
                                  " axes");
  }
  for (const uint32_t axes : plan.sums.levels)
    DC_RETURN_IF_ERROR(check_axes(plan, axes, "a level of the sums"));
  return check_axes(plan, plan.sums.shards, "the shards of the sums");
}

Status check_memory_ids(const Plan& plan) {
  if (plan.budgets.size() > kMaxSpaces) {
    return bad_plan("DC3103", std::to_string(plan.budgets.size()) + " budgets");
  }
  if (plan.arena_bytes.size() > kMaxSpaces) {
    return bad_plan("DC3103", std::to_string(plan.arena_bytes.size()) + " arenas");
  }
  for (const int64_t bytes : plan.arena_bytes) {
    if (bytes < 0 || bytes > kMaxArena)
      return bad_plan("DC3103", "an arena of " + std::to_string(bytes) + " bytes");
  }
  for (const Slice& slice : plan.slices) {
    if (!is_id_or_none(slice.program, plan.programs.size())) {
      return bad_id("a slice", "program", slice.program, plan.programs.size());
    }
  }
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const Tensor& tensor = plan.tensors[i];
    if (!is_id(tensor.slice, plan.slices.size())) {
      return bad_id(describe_tensor(plan, static_cast<int32_t>(i)), "slice", tensor.slice,
                    plan.slices.size());
    }
    if (check_axes(plan, tensor.stride_axes, "").ok() == false) {
      return check_axes(plan, tensor.stride_axes, describe_tensor(plan, static_cast<int32_t>(i)));
    }
    if (tensor.sizes.size() > kMaxDims || tensor.strides.size() != tensor.sizes.size()) {
      return bad_plan("DC3107", describe_tensor(plan, static_cast<int32_t>(i)) + " has " +
                                    std::to_string(tensor.sizes.size()) + " sizes and " +
                                    std::to_string(tensor.strides.size()) + " strides");
    }
  }
  return {};
}

Status check_remarks(const Plan& plan) {
  for (const base::Remark& remark : plan.remarks) {
    for (const base::RemarkSubject& subject : remark.subjects) {
      const bool of_parameter = subject.kind == base::SubjectKind::Parameter;
      const size_t count = of_parameter ? plan.parameters.size() : kCollectiveKinds;
      if (is_id(subject.id, count)) continue;
      return bad_id("remark '" + remark.code + "'", std::string(name(subject.kind)).c_str(),
                    subject.id, count);
    }
  }
  return {};
}

Status check_inputs(const Plan& plan, const std::vector<Input>& inputs) {
  for (const Input& input : inputs) {
    if (!is_id(input.tensor, plan.tensors.size())) {
      return bad_id("input '" + input.name + "'", "tensor", input.tensor, plan.tensors.size());
    }
  }
  return {};
}

Status check_prediction(const Prediction& prediction) {
  const size_t kinds = prediction.wire_bytes.size();
  if (kinds != 0 && kinds != kCollectiveKinds) {
    return bad_plan("DC3103", "a prediction has " + std::to_string(kinds) + " wire byte counts");
  }
  const size_t bounds = prediction.bounds_ns.size(), figures = prediction.figures_ns.size();
  if ((bounds != 0 && bounds != kBounds) || (figures != 0 && figures != kFigureOrigins)) {
    return bad_plan("DC3103", "a prediction has " + std::to_string(bounds) + " bounds and " +
                                  std::to_string(figures) + " origins of figures");
  }
  return {};
}

template <typename Stored>
Status check_initializer(const Stored& tensor, const std::string& who) {
  const int64_t rows = tensor.sizes.empty() ? 0 : std::max<int64_t>(tensor.sizes[0], 0);
  const int64_t row = tensor.initializer.zero_row;
  if (is_id_or_none(row, static_cast<size_t>(rows))) return {};
  return bad_id(who, "zero row", row, static_cast<size_t>(rows));
}

Status check_model_ids(const Plan& plan) {
  const size_t tensors = plan.tensors.size();
  for (const StateEntry& entry : plan.state) {
    const std::string who = "state '" + entry.name + "'";
    if (!is_id(entry.tensor, tensors)) return bad_id(who, "tensor", entry.tensor, tensors);
    if (!is_id_or_none(entry.parameter, plan.parameters.size())) {
      return bad_id(who, "parameter", entry.parameter, plan.parameters.size());
    }
    if (!is_id_or_none(entry.buffer, plan.buffers.size())) {
      return bad_id(who, "buffer", entry.buffer, plan.buffers.size());
    }
    if (!is_id_or_none(entry.range_of, plan.state.size())) {
      return bad_id(who, "state entry", entry.range_of, plan.state.size());
    }
    for (const PlacedAxis& p : entry.placement) {
      if (!is_id(p.axis, plan.mesh.size()))
        return bad_id(who, "mesh axis", p.axis, plan.mesh.size());
    }
  }
  for (const Parameter& p : plan.parameters) {
    const std::string who = "parameter '" + p.fqn + "'";
    DC_RETURN_IF_ERROR(check_initializer(p, who));
    if (!is_id(p.group, plan.optimizer.groups.size())) {
      return bad_id(who, "optimizer group", p.group, plan.optimizer.groups.size());
    }
    if (!is_id_or_none(p.gradient, tensors)) return bad_id(who, "tensor", p.gradient, tensors);
    if (!is_id_or_none(p.trainable_index, plan.parameters.size())) {
      return bad_id(who, "trainable index", p.trainable_index, plan.parameters.size());
    }
    const auto& last = plan.programs[static_cast<size_t>(plan.step.back().program)].instructions;
    if (!is_id_or_none(p.gradient_ready, last.size())) {
      return bad_id(who, "instruction", p.gradient_ready, last.size());
    }
  }
  for (const Buffer& b : plan.buffers) {
    DC_RETURN_IF_ERROR(check_initializer(b, "buffer '" + b.fqn + "'"));
  }
  DC_RETURN_IF_ERROR(check_inputs(plan, plan.inputs));
  DC_RETURN_IF_ERROR(check_prediction(plan.prediction));
  for (const Variant& variant : plan.variants) {
    DC_RETURN_IF_ERROR(check_inputs(plan, variant.inputs));
    DC_RETURN_IF_ERROR(check_prediction(variant.prediction));
  }
  for (int32_t id : {plan.hyperparameters, plan.rng, plan.scalars, plan.table, plan.loss_sum}) {
    if (!is_id_or_none(id, tensors)) return bad_id("a step scalar", "tensor", id, tensors);
  }
  return {};
}

}  // namespace

Status check_structure(const Plan& plan) {
  DC_RETURN_IF_ERROR(check_mesh(plan));
  DC_RETURN_IF_ERROR(check_sums(plan));
  DC_RETURN_IF_ERROR(check_programs(plan));
  DC_RETURN_IF_ERROR(check_memory_ids(plan));
  DC_RETURN_IF_ERROR(check_remarks(plan));
  return check_model_ids(plan);
}

}  // namespace dc::runtime::plan
