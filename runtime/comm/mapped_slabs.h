// The slabs of all ranks where this rank reaches all of them: where the peers' copies of a buffer
// are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/comm/buffers.h"
#include "runtime/comm/members.h"
#include "src/base/byte_range.h"

namespace dc::runtime::comm {

class MappedSlabs {
 public:
  // One allocation of the job: the address of each rank's slab, and the bytes that each may use.
  void add(std::vector<std::byte*> by_rank, int64_t bytes);
  // From now on only these bytes of each slab are read, in the form of base::merged(). `base` is
  // this rank's.
  void restrict_reads(const std::byte* base, std::span<const base::ByteRange> read);

  // The copy of a buffer that a member has. `ref` itself if it is in no slab, as an empty one.
  std::byte* at_peer(const Ref& ref, const Members& members, int peer) const;
  // Ok when what will be read of every member is what may be read of that rank's slab. Internal
  // (our bug), DC6101.
  base::Status check(Operation operation, std::span<const CollectiveBuffer> buffers,
                     const Members& members) const;

 private:
  struct Region {
    std::vector<std::byte*> by_rank;
    int64_t bytes;
    std::vector<base::ByteRange> read;  // what of each is read
    bool may_read(int64_t offset, int64_t length) const;
  };
  const Region* region_of(const Ref& ref, const Members& members) const;
  base::Status check_in_slab(Operation operation, const Ref& ref, const CollectiveBuffer& buffer,
                             const Members& members, bool whole, base::DType dtype) const;

  std::vector<Region> regions_;
};

}  // namespace dc::runtime::comm
