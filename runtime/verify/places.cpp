#include "runtime/verify/places.h"

#include <algorithm>

#include "runtime/plan/extent.h"

namespace dc::runtime::plan {
namespace {

int64_t floor_div(int64_t a, int64_t b) {  // b > 0
  return a / b - (a % b < 0 ? 1 : 0);
}

}  // namespace

Ranks shared_ranks(const Place& a, const Place& b, int64_t world) {
  if (a.space != b.space || a.bytes == 0 || b.bytes == 0) return {};
  // low <= r * slope <= high
  const int64_t distance = a.begin - b.begin;
  int64_t low = 1 - a.bytes - distance, high = b.bytes - 1 - distance;
  int64_t slope = a.stride - b.stride;
  if (slope == 0) return low <= 0 && 0 <= high ? Ranks{0, world - 1} : Ranks{};
  if (slope < 0) {
    slope = -slope;
    std::swap(low, high);
    low = -low;
    high = -high;
  }
  return {std::max<int64_t>(0, -floor_div(-low, slope)),
          std::min<int64_t>(world - 1, floor_div(high, slope))};
}

Place place_of(const Plan& plan, int32_t id) {
  const Tensor& tensor = plan.tensors[static_cast<size_t>(id)];
  const Slice& slice = plan.slices[static_cast<size_t>(tensor.slice)];
  return {slice.space, slice.offset + tensor.offset, reach_bytes(tensor).value_or(0),
          tensor.rank_stride};
}

Place place_of_slice(const Plan& plan, int32_t id) {
  const Slice& slice = plan.slices[static_cast<size_t>(id)];
  return {slice.space, slice.offset, slice.bytes, 0};
}

bool same_place(const Plan& plan, int32_t a, int32_t b) {
  return place_of(plan, a) == place_of(plan, b);
}

}  // namespace dc::runtime::plan
