// Level 2, memory: slices lie in their arenas, tensors in their slices on every rank, and no two
// simultaneously live slices share bytes.
#include <algorithm>
#include <map>

#include "runtime/plan/bad_plan.h"
#include "runtime/plan/describe.h"
#include "runtime/plan/extent.h"
#include "runtime/plan/mesh.h"
#include "runtime/verify/checks.h"
#include "src/base/units.h"

namespace dc::runtime::verify {
namespace {

using base::Status;

Status check_slice(const plan::Plan& plan, int32_t id) {
  const plan::Slice& slice = plan.slices[static_cast<size_t>(id)];
  const auto space = static_cast<size_t>(slice.space);
  const int64_t arena = space < plan.arena_bytes.size() ? plan.arena_bytes[space] : 0;
  const auto end = base::checked_add(slice.offset, slice.bytes);
  if (slice.offset < 0 || slice.bytes < 0 || !end || *end > arena) {
    return plan::bad_plan("DC3201", plan::describe_slice(plan, id) + " lies outside its arena of " +
                                        std::to_string(arena) + " bytes");
  }
  if (slice.offset % base::kAlignment != 0) {
    return plan::bad_plan("DC3202", plan::describe_slice(plan, id) +
                                        " does not start on a multiple of " +
                                        std::to_string(base::kAlignment));
  }
  if (slice.program < 0) return {};
  const auto& list = plan.programs[static_cast<size_t>(slice.program)].instructions;
  if (slice.first < 0 || slice.first > slice.last ||
      static_cast<size_t>(slice.last) >= list.size()) {
    return plan::bad_plan("DC3203", plan::describe_slice(plan, id) + " is live from " +
                                        std::to_string(slice.first) + " to " +
                                        std::to_string(slice.last) + " in a program of " +
                                        std::to_string(list.size()) + " instructions");
  }
  return {};
}

Status check_tensor(const plan::Plan& plan, int32_t id) {
  const plan::Tensor& tensor = plan.tensors[static_cast<size_t>(id)];
  const auto negative = [](int64_t v) { return v < 0; };
  if (std::any_of(tensor.sizes.begin(), tensor.sizes.end(), negative) ||
      std::any_of(tensor.strides.begin(), tensor.strides.end(), negative) || tensor.offset < 0 ||
      tensor.rank_stride < 0) {
    return plan::bad_plan(
        "DC3205", plan::describe_tensor(plan, id) + " has a negative size, stride or offset");
  }
  const int64_t width = base::byte_size(tensor.dtype);
  const auto count = plan::element_count(tensor.sizes);
  const auto reach = plan::reach_bytes(tensor);
  const auto ranks =
      base::checked_mul(tensor.rank_stride, plan::group_size(plan, tensor.stride_axes) - 1);
  const auto start = ranks ? base::checked_add(tensor.offset, *ranks) : std::nullopt;
  const auto end = start && reach ? base::checked_add(*start, *reach) : std::nullopt;
  if (!count || !end) {
    return plan::bad_plan("DC3206",
                          "the size of " + plan::describe_tensor(plan, id) + " overflows");
  }
  const plan::Slice& slice = plan.slices[static_cast<size_t>(tensor.slice)];
  if (*end > slice.bytes) {
    return plan::bad_plan("DC3207", plan::describe_tensor(plan, id) + " reaches byte " +
                                        std::to_string(*end) + " of " +
                                        plan::describe_slice(plan, tensor.slice));
  }
  if (tensor.offset % width != 0 || tensor.rank_stride % width != 0) {
    return plan::bad_plan("DC3208", plan::describe_tensor(plan, id) +
                                        " does not start on a multiple of its element size");
  }
  return {};
}

// Slices that are live now, by offset. Never holds two that overlap.
class LiveSet {
 public:
  explicit LiveSet(const plan::Plan& plan) : plan_(plan) {}

  // The id of a live slice that shares bytes with `id`, or -1.
  int32_t clash(int32_t id) const {
    const plan::Slice& slice = at(id);
    const auto after = live_.lower_bound(slice.offset);
    if (after != live_.end() && after->first < slice.offset + slice.bytes) return after->second;
    if (after == live_.begin()) return -1;
    const int32_t before = std::prev(after)->second;
    return at(before).offset + at(before).bytes > slice.offset ? before : -1;
  }
  void insert(int32_t id) { live_.emplace(at(id).offset, id); }
  void erase(int32_t id) { live_.erase(at(id).offset); }

 private:
  const plan::Slice& at(int32_t id) const { return plan_.slices[static_cast<size_t>(id)]; }
  const plan::Plan& plan_;
  std::map<int64_t, int32_t> live_;
};

Status overlap(const plan::Plan& plan, int32_t a, int32_t b) {
  const plan::Slice& slice = plan.slices[static_cast<size_t>(a)];
  const std::string where =
      slice.program < 0 ? ""
                        : " at " + plan::describe_instruction(plan, slice.program, slice.first);
  return plan::bad_plan("DC3204", plan::describe_slice(plan, a) + " and " +
                                      plan::describe_slice(plan, b) +
                                      " are live at the same time and share bytes" + where);
}

// Sweeps one program's slices of one space in order of birth; `ids` are sorted by (first, id).
Status sweep(const plan::Plan& plan, const LiveSet& persistent, const std::vector<int32_t>& ids) {
  const auto slice = [&](int32_t id) -> const plan::Slice& {
    return plan.slices[static_cast<size_t>(id)];
  };
  std::vector<int32_t> by_death = ids;
  std::stable_sort(by_death.begin(), by_death.end(),
                   [&](int32_t a, int32_t b) { return slice(a).last < slice(b).last; });
  LiveSet live(plan);
  size_t dead = 0;
  for (int32_t id : ids) {
    // A slice that ended before this one begins also began before it, so it is in the set.
    while (dead < by_death.size() && slice(by_death[dead]).last < slice(id).first) {
      live.erase(by_death[dead++]);
    }
    if (const int32_t other = persistent.clash(id); other >= 0) return overlap(plan, id, other);
    if (const int32_t other = live.clash(id); other >= 0) return overlap(plan, id, other);
    live.insert(id);
  }
  return {};
}

Status check_space(const plan::Plan& plan, plan::Space space) {
  LiveSet persistent(plan);
  std::vector<std::vector<int32_t>> transient(plan.programs.size());
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const plan::Slice& slice = plan.slices[i];
    if (slice.space != space || slice.bytes == 0) continue;
    if (slice.program >= 0) {
      transient[static_cast<size_t>(slice.program)].push_back(id);
      continue;
    }
    if (const int32_t other = persistent.clash(id); other >= 0) return overlap(plan, id, other);
    persistent.insert(id);
  }
  for (std::vector<int32_t>& ids : transient) {
    std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
      return plan.slices[static_cast<size_t>(a)].first < plan.slices[static_cast<size_t>(b)].first;
    });
    DC_RETURN_IF_ERROR(sweep(plan, persistent, ids));
  }
  return {};
}

}  // namespace

Status check_tensors(const plan::Plan& plan) {
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    DC_RETURN_IF_ERROR(check_slice(plan, static_cast<int32_t>(i)));
  }
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    DC_RETURN_IF_ERROR(check_tensor(plan, static_cast<int32_t>(i)));
  }
  return {};
}

Status check_overlap(const plan::Plan& plan) {
  for (const plan::Space space : base::kSpaces) {
    DC_RETURN_IF_ERROR(check_space(plan, space));
  }
  return {};
}

}  // namespace dc::runtime::verify
