#include "runtime/plan/mesh.h"

#include <algorithm>
#include <utility>

#include "src/base/mesh_place.h"

namespace dc::runtime::plan {
namespace {

int32_t size_of(const std::pair<std::string, int32_t>& axis) { return axis.second; }

bool has_axis(uint32_t axes, size_t axis) {
  return axes == kAllAxes || (axis < kMaxMeshAxes && (axes >> axis & 1) != 0);
}

// Calls with (axis, ranks from one coordinate of it to the next), the last axis first.
template <typename Visit>
void for_each_axis(const Plan& plan, Visit visit) {
  int32_t stride = 1;
  for (size_t axis = plan.mesh.size(); axis-- > 0; stride *= plan.mesh[axis].second) {
    visit(axis, stride);
  }
}

}  // namespace

bool has_ranks(const Plan& plan) {
  int64_t world = 1;
  for (const auto& [name, size] : plan.mesh) {
    if (size < 1 || (world *= size) > kMaxWorld) return false;
  }
  return !plan.mesh.empty() && plan.mesh.size() <= kMaxMeshAxes;
}

bool is_world(const Plan& plan, uint32_t axes) {
  return axes == kAllAxes || axes == (uint32_t{1} << std::min(plan.mesh.size(), kMaxMeshAxes)) - 1;
}

int32_t group_size(const Plan& plan, uint32_t axes) {
  return base::group_size(plan.mesh, size_of, [&](size_t axis) { return has_axis(axes, axis); });
}

int32_t index_in_group(const Plan& plan, uint32_t axes, int32_t rank) {
  const auto in_group = [&](size_t axis) { return has_axis(axes, axis); };
  return base::index_in_group(plan.mesh, size_of, in_group, rank);
}

std::vector<int32_t> ranks_of_group(const Plan& plan, uint32_t axes, int32_t rank) {
  std::vector<int32_t> ranks = {rank};
  for_each_axis(plan, [&](size_t axis, int32_t stride) {
    if (!has_axis(axes, axis)) return;
    const int32_t size = plan.mesh[axis].second;
    const int32_t own = rank / stride % size;
    const std::vector<int32_t> others = ranks;
    ranks.clear();
    for (int32_t coordinate = 0; coordinate < size; ++coordinate) {
      for (const int32_t other : others) ranks.push_back(other + (coordinate - own) * stride);
    }
  });
  return ranks;
}

std::string axes_text(const Plan& plan, uint32_t axes) {
  std::string text;
  for (size_t axis = 0; axis < plan.mesh.size(); ++axis) {
    if (has_axis(axes, axis)) text += (text.empty() ? "" : "+") + plan.mesh[axis].first;
  }
  return text;
}

base::CollectiveLevel level_of(const Plan& plan, uint32_t axes) {
  const std::vector<int32_t> ranks = ranks_of_group(plan, axes, 0);
  if (static_cast<int32_t>(ranks.size()) == plan.world()) return base::CollectiveLevel::World;
  return ranks.back() + 1 == static_cast<int32_t>(ranks.size()) ? base::CollectiveLevel::Inside
                                                                : base::CollectiveLevel::Across;
}

int64_t rank_offset(const Plan& plan, const Tensor& tensor, int32_t rank) {
  if (tensor.rank_stride == 0) return 0;
  return index_in_group(plan, tensor.stride_axes, rank) * tensor.rank_stride;
}

}  // namespace dc::runtime::plan
