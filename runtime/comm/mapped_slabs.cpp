#include "runtime/comm/mapped_slabs.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace dc::runtime::comm {

using base::Status;

void MappedSlabs::add(std::vector<std::byte*> by_rank, int64_t bytes) {
  regions_.push_back({std::move(by_rank), bytes, {{0, bytes}}});
}

void MappedSlabs::restrict_reads(const std::byte* base, std::span<const base::ByteRange> read) {
  for (Region& region : regions_) {
    if (std::find(region.by_rank.begin(), region.by_rank.end(), base) == region.by_rank.end())
      continue;
    region.read.assign(read.begin(), read.end());
  }
}

bool MappedSlabs::Region::may_read(int64_t offset, int64_t length) const {
  const auto next =
      std::upper_bound(read.begin(), read.end(), offset,
                       [](int64_t at, const base::ByteRange& range) { return at < range.begin; });
  return next != read.begin() && offset + length <= std::prev(next)->end;
}

// Looks for member 0's copy, because the range of a later one may be empty and its address then
// past the end of the slab.
const MappedSlabs::Region* MappedSlabs::region_of(const Ref& ref, const Members& members) const {
  const std::byte* origin = static_cast<std::byte*>(ref.data) - members.index * ref.rank_stride;
  for (const Region& region : regions_) {
    const int64_t offset = origin - region.by_rank[static_cast<size_t>(members.own())];
    if (offset >= 0 && offset < region.bytes) return &region;
  }
  return nullptr;
}

std::byte* MappedSlabs::at_peer(const Ref& ref, const Members& members, int peer) const {
  auto* own = static_cast<std::byte*>(ref.data);
  const Region* region = region_of(ref, members);
  if (region == nullptr) return own;
  return region->by_rank[static_cast<size_t>(members.at(peer))] +
         (own - region->by_rank[static_cast<size_t>(members.own())]) +
         (peer - members.index) * ref.rank_stride;
}

Status MappedSlabs::check_in_slab(Operation operation, const Ref& ref,
                                  const CollectiveBuffer& buffer, const Members& members,
                                  bool whole, base::DType dtype) const {
  if (buffer.elements == 0) return base::ok_status();
  const Region* region = region_of(ref, members);
  bool inside = region != nullptr;
  for (int peer = 0; inside && peer < members.size(); ++peer) {
    const int64_t bytes =
        (whole ? buffer.elements : owned_elements(buffer, peer)) * base::byte_size(dtype);
    const int64_t offset =
        at_peer(ref, members, peer) - region->by_rank[static_cast<size_t>(members.at(peer))];
    inside = bytes == 0 || region->may_read(offset, bytes);
  }
  if (inside) return base::ok_status();
  return Status(
      base::ErrorKind::Internal, "DC6101",
      std::string(name(operation)) +
          " was given memory that its peers cannot read; this is a fault in the plan or in dcrun, "
          "please report it");
}

Status MappedSlabs::check(Operation operation, std::span<const CollectiveBuffer> buffers,
                          const Members& members) const {
  for (const CollectiveBuffer& b : buffers) {
    const bool whole = operation != Operation::AllGather;
    DC_RETURN_IF_ERROR(check_in_slab(operation, b.input, b, members, whole, b.dtype));
    if (operation != Operation::AllReduce) continue;
    DC_RETURN_IF_ERROR(check_in_slab(operation, b.output, b, members, true, base::DType::F32));
  }
  return base::ok_status();
}

}  // namespace dc::runtime::comm
