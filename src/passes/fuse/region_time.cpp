#include "src/passes/fuse/region_time.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "src/fusion/draws.h"
#include "src/passes/fuse/fuse_rules.h"
#include "src/passes/fuse/fused_kernel.h"

namespace dc::passes {
namespace {

uint64_t key_of(const fusion::Region& region) {
  uint64_t key = 0;
  for (const int32_t member : region.members)
    key = fusion::mixed(key ^ static_cast<uint64_t>(member) * 2);
  for (const int32_t result : region.results)
    key = fusion::mixed(key ^ (static_cast<uint64_t>(result) * 2 + 1));
  return key;
}

}  // namespace

RegionTime::RegionTime(const ir::Graph& graph, const FusionProgram& program,
                       const cost::CostModel& cost)
    : graph_(graph), program_(program), cost_(cost), closed_form_(closed_form_time(cost)) {}

base::Nanos RegionTime::time(const fusion::Region& region) const {
  if (!cost_.knows_fused_kernels()) return closed_form_.time(region);
  const auto [known, is_new] = known_.try_emplace(key_of(region));
  if (!is_new) return known->second;
  std::vector<ir::NodeId> members;
  std::vector<ir::ValueId> results;
  for (const int32_t member : region.members) {
    const ir::NodeId node = program_.kernels[static_cast<size_t>(member)];
    members.push_back(node);
    for (const int32_t made : region.problem.kernel(member).makes) {
      if (std::ranges::binary_search(region.results, made))
        results.push_back(graph_.node(node).results[0]);
    }
  }
  const std::optional<cost::Estimate> estimate =
      cost_.fused(fused_signature(graph_, members, std::move(results)));
  return known->second = estimate ? estimate->time : closed_form_.time(region);
}

}  // namespace dc::passes
