// Level 2, the state table: role, placement and source of each entry fit its tensor and each other.
#include <algorithm>
#include <map>

#include "runtime/plan/bad_plan.h"
#include "runtime/plan/extent.h"
#include "runtime/plan/names.h"
#include "runtime/plan/state_entries.h"
#include "runtime/verify/checks.h"
#include "src/base/shape.h"

namespace dc::runtime::verify {
namespace {

using base::Status;

const plan::Tensor& tensor_of(const plan::Plan& plan, const plan::StateEntry& entry) {
  return plan.tensors[static_cast<size_t>(entry.tensor)];
}
bool holds_value(plan::StateRole role) {
  return role == plan::StateRole::Parameter || role == plan::StateRole::Shard ||
         role == plan::StateRole::Master;
}

// Empty if the entry belongs to what its role says.
std::string role_mismatch(const plan::StateEntry& entry) {
  if (entry.role == plan::StateRole::Unknown) return "does not say what it is for";
  const std::string role = "has role " + std::string(plan::name(entry.role));
  if (base::is_of_parameter(entry.role) != (entry.parameter >= 0)) {
    return entry.parameter >= 0 ? role + " and names a parameter"
                                : role + " and names no parameter";
  }
  if (base::is_of_buffer(entry.role) != (entry.buffer >= 0)) {
    return entry.buffer >= 0 ? role + " and names a buffer" : role + " and names no buffer";
  }
  return "";
}

bool role_takes(plan::StateRole role, plan::AxisPlacement placement) {
  switch (placement) {
    case plan::AxisPlacement::Replicated:
      return true;
    case plan::AxisPlacement::Shard:
      return false;  // no state is split along a dimension
    case plan::AxisPlacement::FlatShard:
      return role != plan::StateRole::Parameter && role != plan::StateRole::Carried;
    case plan::AxisPlacement::Varying:
      return !base::is_of_parameter(role);
    case plan::AxisPlacement::Partial:
      return role == plan::StateRole::Accumulator;
  }
  return false;
}

// What is wrong with the entry's placement; empty if it suits the role and the tensor has
// the elements of one shard.
std::string placement_mismatch(const plan::Plan& plan, const plan::StateEntry& entry) {
  std::vector<bool> seen(plan.mesh.size());
  bool is_shard = false;
  for (const plan::PlacedAxis& p : entry.placement) {
    const std::string on = std::string(plan::name(p.placement)) + " along mesh axis '" +
                           plan.mesh[static_cast<size_t>(p.axis)].first + "'";
    if (seen[static_cast<size_t>(p.axis)]) return "has two placements along one mesh axis";
    seen[static_cast<size_t>(p.axis)] = true;
    if (!role_takes(entry.role, p.placement)) {
      return "of role " + std::string(plan::name(entry.role)) + " is " + on;
    }
    if (p.placement != plan::AxisPlacement::FlatShard) continue;
    is_shard = true;
    if (p.shard != base::numel(tensor_of(plan, entry).sizes)) {
      return "is " + on + " with " + std::to_string(p.shard) + " elements, its tensor has " +
             std::to_string(base::numel(tensor_of(plan, entry).sizes));
    }
  }
  return !is_shard && entry.role == plan::StateRole::Shard ? "is a shard along no mesh axis" : "";
}

bool same_axes(const plan::Plan& plan, uint32_t a, uint32_t b) {
  const uint32_t known = (uint32_t{1} << plan.mesh.size()) - 1;
  return ((a ^ b) & known) == 0;
}

// Empty if a range lies in the memory of the entry that it names.
std::string range_mismatch(const plan::Plan& plan, const plan::StateEntry& entry) {
  const plan::Tensor& own = tensor_of(plan, entry);
  if (entry.range_of < 0) return own.rank_stride == 0 ? "" : "is a rank's range of no entry";
  const plan::StateEntry& whole = plan.state[static_cast<size_t>(entry.range_of)];
  if (whole.range_of >= 0 || plan::flat_shard(whole) > 0)
    return "is a range of an entry that is no whole";
  if (whole.parameter != entry.parameter) return "is a range of another parameter's entry";
  const plan::Tensor& all = tensor_of(plan, whole);
  const int64_t bytes = base::byte_size(own.dtype);
  const bool same = all.slice == own.slice && all.dtype == own.dtype && all.offset == own.offset;
  const bool strides = own.rank_stride == plan::flat_shard(entry) * bytes &&
                       same_axes(plan, own.stride_axes, plan::shard_axes(entry));
  return same && plan::flat_shard(entry) > 0 && strides
             ? ""
             : "is not the rank's range of '" + whole.name + "'";
}

// Empty if the tensor has the parameter's elements in a type that can hold them.
std::string parameter_mismatch(const plan::Plan& plan, const plan::StateEntry& entry) {
  const plan::Parameter& p = plan.parameters[static_cast<size_t>(entry.parameter)];
  const plan::Tensor& tensor = tensor_of(plan, entry);
  const int64_t wanted = plan::flat_shard(entry) > 0 ? p.shard : *plan::element_count(p.sizes);
  if (base::numel(tensor.sizes) != wanted) {
    return "has " + std::to_string(base::numel(tensor.sizes)) +
           " elements, not those of parameter '" + p.fqn + "'";
  }
  if (base::is_floating(p.dtype) != base::is_floating(tensor.dtype)) {
    return "cannot hold parameter '" + p.fqn + "'";
  }
  if (entry.role == plan::StateRole::Carried) return "";  // in the type in which it was gathered
  const bool as_in_model =
      entry.role == plan::StateRole::Parameter || entry.role == plan::StateRole::Shard;
  const base::DType dtype = as_in_model ? p.dtype : base::DType::F32;
  return tensor.dtype == dtype ? ""
                               : "of role " + std::string(plan::name(entry.role)) + " is in " +
                                     std::string(base::name(tensor.dtype)) + ", not in " +
                                     std::string(base::name(dtype));
}

// Empty if the role takes this source.
std::string source_mismatch(const plan::StateEntry& entry) {
  const bool sharded = plan::flat_shard(entry) > 0;
  bool fits = false;
  switch (entry.source) {
    case plan::StateSource::Zeros:
      fits = !holds_value(entry.role) && !base::is_of_buffer(entry.role);
      break;
    case plan::StateSource::Runtime:
      fits = !base::is_of_parameter(entry.role) && !base::is_of_buffer(entry.role);
      break;
    case plan::StateSource::ParameterWhole:
      fits = holds_value(entry.role) && !sharded;
      break;
    case plan::StateSource::ParameterShard:
      fits = holds_value(entry.role) && sharded;
      break;
    case plan::StateSource::Buffer:
    case plan::StateSource::Data:
      fits = base::is_of_buffer(entry.role);
      break;
  }
  if (!fits) {
    return "of role " + std::string(plan::name(entry.role)) + " cannot start from source " +
           std::string(plan::name(entry.source));
  }
  return !entry.data.empty() && entry.source != plan::StateSource::Data
             ? "has bytes it does not use"
             : "";
}

// Empty if the tensor has the bytes of its buffer.
std::string buffer_mismatch(const plan::Plan& plan, const plan::StateEntry& entry) {
  const plan::Tensor& tensor = tensor_of(plan, entry);
  const int64_t count = base::numel(tensor.sizes);
  const plan::Buffer& b = plan.buffers[static_cast<size_t>(entry.buffer)];
  if (plan::element_count(b.sizes) != count || b.dtype != tensor.dtype) {
    return "does not fit buffer '" + b.fqn + "'";
  }
  const bool complete =
      static_cast<uint64_t>(count * base::byte_size(tensor.dtype)) == entry.data.size();
  return entry.source != plan::StateSource::Data || complete
             ? ""
             : "has " + std::to_string(entry.data.size()) + " bytes of data for " +
                   std::to_string(count) + " elements";
}

std::string entry_mismatch(const plan::Plan& plan, const plan::StateEntry& entry) {
  const plan::Tensor& tensor = tensor_of(plan, entry);
  if (plan.slices[static_cast<size_t>(tensor.slice)].program >= 0)
    return "does not keep its memory";
  if (!plan::is_contiguous(tensor)) return "is not contiguous";
  for (const std::string& wrong : {role_mismatch(entry), placement_mismatch(plan, entry),
                                   range_mismatch(plan, entry), source_mismatch(entry)}) {
    if (!wrong.empty()) return wrong;
  }
  if (base::is_of_parameter(entry.role)) return parameter_mismatch(plan, entry);
  return base::is_of_buffer(entry.role) ? buffer_mismatch(plan, entry) : "";
}

// Each parameter has a value, and at most one entry of a role.
Status check_roles(const plan::Plan& plan) {
  std::vector<std::array<int, plan::kStateRoles>> counts(plan.parameters.size());
  for (const plan::StateEntry& entry : plan.state) {
    if (entry.parameter < 0) continue;
    if (++counts[static_cast<size_t>(entry.parameter)][static_cast<size_t>(entry.role)] == 1)
      continue;
    return plan::bad_plan(
        "DC3232", "parameter '" + plan.parameters[static_cast<size_t>(entry.parameter)].fqn +
                      "' has 2 state entries of role " + std::string(plan::name(entry.role)));
  }
  const plan::ParameterStates states(plan);
  for (size_t i = 0; i < plan.parameters.size(); ++i) {
    if (states.authoritative(i) >= 0) continue;
    return plan::bad_plan("DC3232",
                          "parameter '" + plan.parameters[i].fqn + "' has no value in the state");
  }
  return {};
}

// Each has its own bytes, but for ranges of another.
Status check_own_bytes(const plan::Plan& plan) {
  std::map<int32_t, const plan::StateEntry*> of_slice;
  for (const plan::StateEntry& entry : plan.state) {
    if (entry.range_of >= 0) continue;
    const auto [first, is_new] = of_slice.emplace(tensor_of(plan, entry).slice, &entry);
    if (is_new) continue;
    return plan::bad_plan(
        "DC3231", "state '" + entry.name + "' lies where state '" + first->second->name + "' does");
  }
  return {};
}

}  // namespace

Status check_state_entries(const plan::Plan& plan) {
  for (const plan::StateEntry& entry : plan.state) {
    const std::string wrong = entry_mismatch(plan, entry);
    if (!wrong.empty()) return plan::bad_plan("DC3231", "state '" + entry.name + "' " + wrong);
  }
  DC_RETURN_IF_ERROR(check_own_bytes(plan));
  return check_roles(plan);
}

}  // namespace dc::runtime::verify
