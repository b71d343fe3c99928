#include "runtime/plan/peer_reads.h"

#include "runtime/plan/mesh.h"

namespace dc::runtime::plan {
namespace {

void add(const Plan& plan, int32_t id, int64_t elements, std::vector<base::ByteRange>& ranges) {
  const Tensor& tensor = plan.tensors[static_cast<size_t>(id)];
  const int64_t begin = plan.slices[static_cast<size_t>(tensor.slice)].offset + tensor.offset;
  const int64_t bytes = elements * base::byte_size(tensor.dtype);
  const int32_t places = tensor.rank_stride == 0 ? 1 : plan.world();
  for (int32_t rank = 0; rank < places; ++rank) {
    const int64_t at = begin + rank_offset(plan, tensor, rank);
    ranges.push_back({at, at + bytes});
  }
}

}  // namespace

std::vector<base::ByteRange> peer_reads(const Plan& plan) {
  std::vector<base::ByteRange> ranges;
  for (const Program& program : plan.programs) {
    for (const Instruction& instruction : program.instructions) {
      if (instruction.kind != InstructionKind::Collective) continue;
      const bool gathers = instruction.collective == CollectiveKind::AllGather;
      for (const CollectiveBuffer& buffer : instruction.buffers) {
        add(plan, buffer.input, gathers ? buffer.shard : buffer.elements, ranges);
        if (instruction.collective != CollectiveKind::AllReduce) continue;
        add(plan, buffer.output, buffer.elements, ranges);
      }
    }
  }
  return base::merged(std::move(ranges));
}

}  // namespace dc::runtime::plan
