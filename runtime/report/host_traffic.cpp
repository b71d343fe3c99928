#include "runtime/report/host_traffic.h"

#include <algorithm>

#include "runtime/plan/mesh.h"
#include "src/base/dtype.h"

namespace dc::runtime::report {
namespace {

// Elements of a buffer that the member at `index` of its group owns.
int64_t owned(const plan::CollectiveBuffer& buffer, size_t index) {
  const int64_t before = static_cast<int64_t>(index) * buffer.shard;
  return std::clamp<int64_t>(buffer.elements - before, 0, buffer.shard);
}

// What `rank`, of the first `ranks_per_host`, sends to members of its group on other hosts.
int64_t sent_by(const plan::Plan& plan, const plan::Instruction& in, int32_t rank,
                int32_t ranks_per_host) {
  const uint32_t axes = plan.groups[static_cast<size_t>(in.group)].axes;
  const std::vector<int32_t> members = plan::ranks_of_group(plan, axes, rank);
  const auto own = static_cast<size_t>(plan::index_in_group(plan, axes, rank));
  const bool reduces = base::reduces(in.collective);
  const bool gathers = in.collective != plan::CollectiveKind::ReduceScatter;
  int64_t bytes = 0;
  for (const plan::CollectiveBuffer& buffer : in.buffers) {
    const auto width = [&](int32_t tensor) {
      return int64_t{base::byte_size(plan.tensors[static_cast<size_t>(tensor)].dtype)};
    };
    for (size_t peer = 0; peer < members.size(); ++peer) {
      if (members[peer] < ranks_per_host) continue;
      if (reduces) bytes += owned(buffer, peer) * width(buffer.input);
      if (gathers) bytes += owned(buffer, own) * width(buffer.output);
    }
  }
  return bytes;
}

}  // namespace

int64_t sent_across_hosts(const plan::Plan& plan) {
  if (plan.mesh.size() < 2) return 0;
  const int32_t ranks_per_host = plan.world() / plan.mesh.front().second;
  int64_t bytes = 0;
  for (const plan::ProgramRun& run : plan.step) {
    for (const plan::Instruction& in :
         plan.programs[static_cast<size_t>(run.program)].instructions) {
      if (in.kind != plan::InstructionKind::Collective) continue;
      for (int32_t rank = 0; rank < ranks_per_host; ++rank)
        bytes += run.repeat * sent_by(plan, in, rank, ranks_per_host);
    }
  }
  return bytes;
}

}  // namespace dc::runtime::report
