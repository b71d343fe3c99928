// The mesh of a plan: ranks in rows, the last axis runs fastest. A group is a set of axes, as a
// mask (bit i: axis i of Plan::mesh); the ranks of a rank's group differ from it along these axes
// only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/plan/plan.h"
#include "src/base/collective_level.h"
#include "src/base/step_scalars.h"

namespace dc::runtime::plan {

inline constexpr size_t kMaxMeshAxes = 8;
inline constexpr int64_t kMaxWorld = base::kMaxRanks;

// Whether the mesh has from 1 to kMaxWorld ranks and at most kMaxMeshAxes axes. The rest is only
// for such plans.
bool has_ranks(const Plan& plan);

// Whether the axes are all of the mesh. kAllAxes, or a bit for each.
bool is_world(const Plan& plan, uint32_t axes);
int32_t group_size(const Plan& plan, uint32_t axes);
// The rank's place in its group: row-major over the group's axes.
int32_t index_in_group(const Plan& plan, uint32_t axes, int32_t rank);
// All ranks of the rank's group, ascending; its own is at index_in_group().
std::vector<int32_t> ranks_of_group(const Plan& plan, uint32_t axes, int32_t rank);
// "dp", "host+dp"
std::string axes_text(const Plan& plan, uint32_t axes);
// World: all ranks. Inside: a group that is rank 0's and those that follow it, which are on its
// host where a host axis comes first. Across: any other.
base::CollectiveLevel level_of(const Plan& plan, uint32_t axes);
// Bytes from the place of the first member to this rank's, in a tensor with a rank stride.
int64_t rank_offset(const Plan& plan, const Tensor& tensor, int32_t rank);

}  // namespace dc::runtime::plan
