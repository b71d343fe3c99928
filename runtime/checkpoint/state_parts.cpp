#include "runtime/checkpoint/state_parts.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "runtime/plan/state_entries.h"

namespace dc::runtime {
namespace {

using base::Result;
using base::Status;
using plan::StateRole;

std::optional<ValueKind> kind_of(StateRole role) {
  switch (role) {
    case StateRole::Parameter:
    case StateRole::Shard:
      return ValueKind::Parameter;
    case StateRole::Master:
      return ValueKind::Master;
    case StateRole::Moment1:
      return ValueKind::Moment1;
    case StateRole::Moment2:
      return ValueKind::Moment2;
    case StateRole::Momentum:
      return ValueKind::Momentum;
    case StateRole::Buffer:
      return ValueKind::Buffer;
    case StateRole::Unknown:
    case StateRole::Accumulator:
    case StateRole::Carried:
    case StateRole::Constant:
    case StateRole::Hyperparameters:
    case StateRole::Random:
    case StateRole::Scalars:
    case StateRole::NormTable:
    case StateRole::LossSum:
    case StateRole::Losses:
      return std::nullopt;
  }
  return std::nullopt;
}

int64_t product(const std::vector<int64_t>& sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

class PartFinder {
 public:
  PartFinder(const plan::Plan& plan, int rank) : plan_(plan), states_(plan), rank_(rank) {
    for (const plan::Program& program : plan.programs) {
      for (const plan::Instruction& instruction : program.instructions) {
        for (const int32_t tensor : instruction.writes) written_.insert(slice_of(tensor));
      }
    }
  }

  Result<std::vector<StatePart>> to_load() const {
    std::vector<StatePart> parts;
    for (const plan::StateEntry& entry : plan_.state) {
      DC_RETURN_IF_ERROR(check(entry));
      if (!kind_of(entry.role) || is_constant(entry)) continue;
      parts.push_back(whole_entry(entry));
    }
    return parts;
  }

  Result<std::vector<StatePart>> to_save() const {
    std::vector<StatePart> parts;
    for (const plan::StateEntry& entry : plan_.state) {
      DC_RETURN_IF_ERROR(check(entry));
      if (!kind_of(entry.role) || is_constant(entry) || is_seen_by_a_shard(entry)) continue;
      StatePart part = whole_entry(entry);
      if (part.piece.value.kind == ValueKind::Buffer) {
        const bool everybody = part.piece.value.rank >= 0;
        if (!everybody && rank_ != 0) part.piece.count = 0;
      } else if (plan::flat_shard(entry) == 0) {
        take_own(entry, part);
      }
      parts.push_back(std::move(part));
    }
    return parts;
  }

 private:
  int32_t slice_of(int32_t tensor) const {
    return tensor < 0 ? -1 : plan_.tensors[static_cast<size_t>(tensor)].slice;
  }

  static Status check(const plan::StateEntry& entry) {
    if (entry.role != StateRole::Unknown) return base::ok_status();
    return Status(base::ErrorKind::Mismatch, "DC6821",
                  "the plan does not say what its state '" + entry.name +
                      "' is for, so it cannot be saved or resumed; compile it again");
  }

  // Its bytes are in the plan and stay what they are.
  bool is_constant(const plan::StateEntry& entry) const {
    return entry.source == plan::StateSource::Data && !written_.contains(slice_of(entry.tensor));
  }

  // A whole parameter of which the rank's range is an entry of its own: that is never behind.
  bool is_seen_by_a_shard(const plan::StateEntry& entry) const {
    return entry.role == StateRole::Parameter &&
           states_.find(static_cast<size_t>(entry.parameter), StateRole::Shard) >= 0;
  }

  StatePart whole_entry(const plan::StateEntry& entry) const {
    StatePart part;
    part.tensor = entry.tensor;
    part.piece.value.kind = *kind_of(entry.role);
    part.piece.dtype = plan_.tensors[static_cast<size_t>(entry.tensor)].dtype;
    if (part.piece.value.kind == ValueKind::Buffer) {
      const plan::Buffer& buffer = plan_.buffers[static_cast<size_t>(entry.buffer)];
      part.piece.value.fqn = buffer.fqn;
      part.piece.sizes = buffer.sizes;
      part.is_persistent = buffer.persistent;
      if (written_.contains(slice_of(entry.tensor))) part.piece.value.rank = rank_;
      part.piece.count = product(buffer.sizes);
      return part;
    }
    const plan::Parameter& parameter = plan_.parameters[static_cast<size_t>(entry.parameter)];
    part.piece.value.fqn = parameter.fqn;
    part.piece.sizes = parameter.sizes;
    const plan::ElementRange range =
        plan::held_elements(plan_, entry, product(parameter.sizes), rank_);
    part.piece.first = range.first;
    part.piece.count = range.count;
    return part;
  }

  // Of a value that all ranks hold whole, each writes the range that would be its shard.
  void take_own(const plan::StateEntry& entry, StatePart& part) const {
    const plan::Parameter& parameter = plan_.parameters[static_cast<size_t>(entry.parameter)];
    const OwnRange range = own_range(part.piece.numel(), parameter.shard, rank_);
    part.piece.first = part.tensor_first = range.first;
    part.piece.count = range.count;
  }

  const plan::Plan& plan_;
  plan::ParameterStates states_;
  int rank_;
  std::unordered_set<int32_t> written_;  // slices; looked up only
};

}  // namespace

OwnRange own_range(int64_t elements, int64_t shard, int rank) {
  if (shard <= 0) return rank == 0 ? OwnRange{0, elements} : OwnRange{};
  const int64_t first = std::min(elements, rank * shard);
  return {first, std::min(elements, first + shard) - first};
}

Result<std::vector<StatePart>> parts_to_save(const plan::Plan& plan, int rank) {
  return PartFinder(plan, rank).to_save();
}

Result<std::vector<StatePart>> parts_to_load(const plan::Plan& plan, int rank) {
  return PartFinder(plan, rank).to_load();
}

}  // namespace dc::runtime
