#include "runtime/verify/places.h"

#include <algorithm>

#include "runtime/plan/extent.h"
#include "runtime/plan/mesh.h"

namespace dc::runtime::verify {
namespace {

int64_t floor_div(int64_t a, int64_t b) {  // b > 0
  return a / b - (a % b < 0 ? 1 : 0);
}

}  // namespace

Ranks shared_ranks(const Place& a, const Place& b, int64_t members) {
  if (a.space != b.space || a.bytes == 0 || b.bytes == 0) return {};
  // The places share a byte on rank r if low <= r * slope <= high.
  const int64_t distance = a.begin - b.begin;
  int64_t low = 1 - a.bytes - distance, high = b.bytes - 1 - distance;
  int64_t slope = a.stride - b.stride;
  if (slope == 0) return low <= 0 && 0 <= high ? Ranks{0, members - 1} : Ranks{};
  if (slope < 0) {
    slope = -slope;
    std::swap(low, high);
    low = -low;
    high = -high;
  }
  return {std::max<int64_t>(0, -floor_div(-low, slope)),
          std::min<int64_t>(members - 1, floor_div(high, slope))};
}

Ranks shared_ranks(const plan::Plan& plan, const Place& a, const Place& b) {
  const int64_t world = plan.world();
  const uint32_t axes = a.stride == 0 ? b.axes : a.axes;
  if (b.stride != 0 && b.axes != axes) {
    for (int32_t rank = 0; rank < world; ++rank) {
      const auto on_rank = [&](Place place) {
        place.begin += plan::index_in_group(plan, place.axes, rank) * place.stride;
        place.stride = 0;
        return place;
      };
      if (!shared_ranks(on_rank(a), on_rank(b), 1).empty()) return {rank, rank};
    }
    return {};
  }
  const int32_t members = plan::group_size(plan, axes);
  const Ranks places = shared_ranks(a, b, members);
  if (places.empty() || plan::is_world(plan, axes)) return places;
  if (places.first == 0 && places.last == members - 1) return {0, world - 1};
  const int32_t first = plan::ranks_of_group(plan, axes, 0)[static_cast<size_t>(places.first)];
  return {first, first};
}

int64_t end_of(const plan::Plan& plan, const Place& place) {
  return place.end(plan::group_size(plan, place.axes));
}

Place place_of(const plan::Plan& plan, int32_t id) {
  const plan::Tensor& tensor = plan.tensors[static_cast<size_t>(id)];
  const plan::Slice& slice = plan.slices[static_cast<size_t>(tensor.slice)];
  return {slice.space, slice.offset + tensor.offset, plan::reach_bytes(tensor).value_or(0),
          tensor.rank_stride, tensor.rank_stride == 0 ? plan::kAllAxes : tensor.stride_axes};
}

Place place_of_slice(const plan::Plan& plan, int32_t id) {
  const plan::Slice& slice = plan.slices[static_cast<size_t>(id)];
  return {slice.space, slice.offset, slice.bytes, 0};
}

bool same_place(const plan::Plan& plan, int32_t a, int32_t b) {
  return place_of(plan, a) == place_of(plan, b);
}

}  // namespace dc::runtime::verify
