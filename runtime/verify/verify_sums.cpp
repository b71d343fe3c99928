// Level 2, the order in which gradients are summed: what the plan says of it is what its
// accumulators hold and its reductions do. Only gradients are reduced.
#include <map>

#include "runtime/plan/bad_plan.h"
#include "runtime/plan/describe.h"
#include "runtime/plan/mesh.h"
#include "runtime/plan/names.h"
#include "runtime/plan/state_entries.h"
#include "runtime/verify/checks.h"

namespace dc::runtime::verify {
namespace {

using base::Status;
using plan::Plan;

Status bad_sums(const std::string& what) { return plan::bad_plan("DC3243", what); }

// Without axes of one rank, so that equal groups have equal masks.
uint32_t wide(const Plan& plan, uint32_t axes) {
  uint32_t mask = 0;
  for (size_t axis = 0; axis < plan.mesh.size(); ++axis) {
    if ((axes >> axis & 1) != 0 && plan.mesh[axis].second > 1) mask |= uint32_t{1} << axis;
  }
  return mask;
}

Status check_levels(const Plan& plan) {
  uint32_t seen = 0;
  for (const uint32_t axes : plan.sums.levels) {
    if ((wide(plan, axes) & seen) != 0)
      return bad_sums("sums go twice along '" + plan::axes_text(plan, axes & seen) + "'");
    seen |= wide(plan, axes);
  }
  if (seen == wide(plan, plan::kAllAxes)) return {};
  return bad_sums("sums do not go along '" + plan::axes_text(plan, ~seen) + "'");
}

// Of an accumulator: the axes along which its value is not summed yet.
uint32_t partial_axes(const Plan& plan, const plan::StateEntry& entry) {
  uint32_t axes = 0;
  for (const plan::PlacedAxis& p : entry.placement) {
    if (p.placement == plan::AxisPlacement::Partial) axes |= uint32_t{1} << p.axis;
  }
  return wide(plan, axes);
}

// Shards lie along the axes that the plan says, and between micro-batches accumulators hold what
// is summed along the levels that its order says.
Status check_awaited(const Plan& plan) {
  const plan::SumOrder& sums = plan.sums;
  const bool each = sums.reductions == plan::ReductionOrder::PerMicroBatch;
  const uint32_t all = wide(plan, plan::kAllAxes);
  const uint32_t awaited = each ? all & ~wide(plan, sums.levels[0]) : all;
  for (const plan::StateEntry& entry : plan.state) {
    if (!base::is_of_parameter(entry.role)) continue;
    const uint32_t cut = plan::shard_axes(entry);
    if (plan::flat_shard(entry) > 0 && wide(plan, cut) != wide(plan, sums.shards)) {
      return bad_sums("state '" + entry.name + "' is cut along '" + plan::axes_text(plan, cut) +
                      "', and shards are said to lie along '" + plan::axes_text(plan, sums.shards) +
                      "'");
    }
    if (entry.role == plan::StateRole::Accumulator && partial_axes(plan, entry) != awaited) {
      return bad_sums("state '" + entry.name + "' awaits sums along '" +
                      plan::axes_text(plan, partial_axes(plan, entry)) + "', and with order " +
                      std::string(plan::name(sums.reductions)) + " it awaits those along '" +
                      plan::axes_text(plan, awaited) + "'");
    }
  }
  return {};
}

// Follows sums through one program of the step.
class SumsOfProgram {
 public:
  SumsOfProgram(const Plan& plan, int32_t program, bool last)
      : plan_(plan), program_(program), last_(last) {
    const bool each = plan.sums.reductions == plan::ReductionOrder::PerMicroBatch;
    for (const plan::StateEntry& entry : plan.state) {
      if (entry.role != plan::StateRole::Accumulator || entry.range_of >= 0) continue;
      if (!each) continue;
      levels_[place(entry.tensor)] = 1;
      const plan::Tensor& tensor = plan.tensors[static_cast<size_t>(entry.tensor)];
      const bool on_device =
          plan.slices[static_cast<size_t>(tensor.slice)].space == plan::Space::Device;
      if (on_device && plan.sums.levels.size() > 1) unfinished_[place(entry.tensor)] = entry.tensor;
    }
  }

  Status run() {
    const auto& list = plan_.programs[static_cast<size_t>(program_)].instructions;
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string wrong = follow(list[i]);
      if (wrong.empty()) continue;
      return bad_sums(plan::describe_instruction(plan_, program_, static_cast<int32_t>(i)) + " " +
                      wrong);
    }
    if (!last_ || unfinished_.empty()) return {};
    return bad_sums(
        plan::describe_tensor(plan_, unfinished_.begin()->second) + " is not summed along '" +
        plan::axes_text(plan_, plan_.sums.levels[levels_of(unfinished_.begin()->second)]) +
        "' when the step ends");
  }

 private:
  using Place = std::pair<int32_t, int64_t>;  // slice, offset
  Place place(int32_t tensor) const {
    const plan::Tensor& t = plan_.tensors[static_cast<size_t>(tensor)];
    return {t.slice, t.offset};
  }
  // Along how many levels the value is summed.
  size_t levels_of(int32_t tensor) const {
    const auto found = levels_.find(place(tensor));
    return found == levels_.end() ? 0 : found->second;
  }

  // Empty, or what is wrong.
  std::string follow(const plan::Instruction& in) {
    switch (in.kind) {
      case plan::InstructionKind::Kernel:
        follow_kernel(in);
        return "";
      case plan::InstructionKind::Copy:
        if (levels_of(in.src) > 0)
          levels_[place(in.dst)] = levels_of(in.src);
        else
          levels_.erase(place(in.dst));
        return "";
      case plan::InstructionKind::Collective:
        return base::reduces(in.collective) ? follow_reduction(in) : "";
      case plan::InstructionKind::Signal:
      case plan::InstructionKind::Wait:
        return "";
    }
    return "";
  }

  void follow_kernel(const plan::Instruction& in) {
    if (in.op == "dc.accumulate") {  // the sum, and what is added to it, summed as far
      if (in.args.size() > 1) unfinished_.erase(place(static_cast<int32_t>(in.args[1].i)));
      return;
    }
    if (levels_.empty()) return;
    for (const int32_t written : in.writes) levels_.erase(place(written));
  }

  std::string follow_reduction(const plan::Instruction& in) {
    const auto& sums = plan_.sums;
    const uint32_t axes = plan_.groups[static_cast<size_t>(in.group)].axes;
    size_t level = 0;
    while (level < sums.levels.size() && wide(plan_, sums.levels[level]) != wide(plan_, axes))
      ++level;
    const std::string along = "sums along '" + plan::axes_text(plan_, axes) + "'";
    if (level == sums.levels.size()) return along + ", which is no level of the plan's sums";
    const bool each = sums.reductions == plan::ReductionOrder::PerMicroBatch && level == 0;
    if (!each && !last_) return along + " before the last micro-batch";
    for (const plan::CollectiveBuffer& buffer : in.buffers) {
      const size_t before = levels_of(buffer.input);
      if (before != level) {
        return along + " what is summed along " + std::to_string(before) + " of the " +
               std::to_string(level) + " levels before it";
      }
      unfinished_.erase(place(buffer.input));
      levels_[place(buffer.output)] = level + 1;
      if (level + 1 < sums.levels.size()) unfinished_[place(buffer.output)] = buffer.output;
    }
    return "";
  }

  const Plan& plan_;
  int32_t program_;
  bool last_;
  std::map<Place, size_t> levels_;
  std::map<Place, int32_t> unfinished_;  // tensors that a later level must sum
};

}  // namespace

Status check_sums(const Plan& plan) {
  if (plan.sums.reductions == plan::ReductionOrder::Unknown) {
    return plan.sums.levels.empty() ? Status()
                                    : bad_sums("sums have levels and no order over micro-batches");
  }
  DC_RETURN_IF_ERROR(check_levels(plan));
  if (plan.world() == 1) return {};
  DC_RETURN_IF_ERROR(check_awaited(plan));
  for (size_t i = 0; i < plan.step.size(); ++i) {
    const plan::ProgramRun& run = plan.step[i];
    const bool last = i + 1 == plan.step.size() && run.repeat == 1;
    DC_RETURN_IF_ERROR(SumsOfProgram(plan, run.program, last).run());
  }
  return {};
}

}  // namespace dc::runtime::verify
