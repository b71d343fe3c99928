#include "runtime/plan/saved_state.h"

#include "runtime/plan/extent.h"
#include "runtime/plan/mesh.h"
#include "src/base/units.h"

namespace dc::runtime::plan {
namespace {

// Of what a rank saves, in elements: as shards are aligned, so a value that all ranks hold is saved
// in the ranges that would be its shards.
constexpr int64_t kPartAlignment = 32;

std::optional<ValueKind> saved_kind(StateRole role) {
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

}  // namespace

ElementRange own_range(int64_t elements, int64_t shard, int32_t rank) {
  if (shard <= 0) return rank == 0 ? ElementRange{0, elements} : ElementRange{};
  return shard_range(elements, shard, rank);
}

SavedState::SavedState(const Plan& plan) : plan_(plan), states_(plan) {
  for (const Program& program : plan.programs) {
    for (const Instruction& instruction : program.instructions) {
      for (const int32_t tensor : instruction.writes) {
        written_.insert(tensor < 0 ? -1 : plan.tensors[static_cast<size_t>(tensor)].slice);
      }
    }
  }
}

bool SavedState::is_written(const StateEntry& entry) const {
  return entry.tensor >= 0 &&
         written_.contains(plan_.tensors[static_cast<size_t>(entry.tensor)].slice);
}

bool SavedState::is_copy(const StateEntry& entry) const {
  return entry.role == StateRole::Master && entry.tensor >= 0 &&
         plan_.tensors[static_cast<size_t>(entry.tensor)].dtype ==
             plan_.parameters[static_cast<size_t>(entry.parameter)].dtype;
}

std::optional<ValueKind> SavedState::kind(const StateEntry& entry) const {
  return is_copy(entry) ? ValueKind::Parameter : saved_kind(entry.role);
}

bool SavedState::holds(const StateEntry& entry) const {
  const bool is_constant = entry.source == StateSource::Data && !is_written(entry);
  return kind(entry) && !is_constant;
}

bool SavedState::takes(const StateEntry& entry) const {
  const bool seen_by_a_shard =
      entry.role == StateRole::Parameter &&
      states_.find(static_cast<size_t>(entry.parameter), StateRole::Shard) >= 0;
  return holds(entry) && !seen_by_a_shard && !is_copy(entry);
}

bool SavedState::is_per_rank(const StateEntry& entry) const {
  return entry.role == StateRole::Buffer && is_written(entry);
}

ElementRange SavedState::range(const StateEntry& entry, int32_t rank) const {
  if (entry.role == StateRole::Buffer) {
    const int64_t elements =
        element_count(plan_.buffers[static_cast<size_t>(entry.buffer)].sizes).value();
    return {0, is_per_rank(entry) || rank == 0 ? elements : 0};
  }
  const Parameter& parameter = plan_.parameters[static_cast<size_t>(entry.parameter)];
  const int64_t elements = element_count(parameter.sizes).value();
  const ElementRange held = held_elements(plan_, entry, elements, rank);
  const uint32_t replicas = ~shard_axes(entry);
  const int64_t holders = group_size(plan_, replicas), shard = flat_shard(entry);
  const int64_t part =
      base::round_up(((shard > 0 ? shard : elements) + holders - 1) / holders, kPartAlignment);
  const ElementRange own = shard_range(held.count, part, index_in_group(plan_, replicas, rank));
  return {held.first + own.first, own.count};
}

int64_t copy_bytes(const Plan& plan, int32_t rank) {
  const SavedState saved(plan);
  int64_t bytes = 0;
  for (const StateEntry& entry : plan.state) {
    if (entry.tensor < 0 || !saved.takes(entry)) continue;
    const Tensor& tensor = plan.tensors[static_cast<size_t>(entry.tensor)];
    const bool on_disk = plan.slices[static_cast<size_t>(tensor.slice)].space == Space::Disk;
    if (on_disk) continue;
    bytes += base::round_up(saved.range(entry, rank).count * base::byte_size(tensor.dtype),
                            kCopyAlignment);
  }
  return bytes;
}

}  // namespace dc::runtime::plan
