// How a reduction is cut into rounds: what of a rank's ranges is summed in each, so that the
// contributions of one peer fit into a given room. Every rank cuts the ranges of all ranks alike.
#pragma once

#include <algorithm>
#include <span>

#include "runtime/comm/buffers.h"
#include "src/base/units.h"

namespace dc::runtime::comm {

struct ReductionPiece {
  const CollectiveBuffer* buffer;
  int64_t first, count;  // elements within the rank's range
  int64_t place;         // bytes from the beginning of the room
};

// Calls visit(piece) for each piece of a round of `room` bytes, a multiple of base::kAlignment.
// The ranges follow each other, each from such a multiple on.
template <typename Visit>
void for_each_piece(std::span<const CollectiveBuffer> buffers, int rank, int64_t round,
                    int64_t room, Visit visit) {
  const int64_t begin = round * room, end = begin + room;
  int64_t at = 0;  // where the range begins
  for (const CollectiveBuffer& b : buffers) {
    const int64_t wire = base::byte_size(b.dtype), bytes = owned_elements(b, rank) * wire;
    const int64_t from = std::max(at, begin), to = std::min(at + bytes, end);
    if (from < to) visit(ReductionPiece{&b, (from - at) / wire, (to - from) / wire, from - begin});
    at = base::round_up(at + bytes, base::kAlignment);
  }
}

inline int64_t rounds_of(std::span<const CollectiveBuffer> buffers, int rank, int64_t room) {
  int64_t bytes = 0;
  for (const CollectiveBuffer& b : buffers) {
    bytes += base::round_up(owned_elements(b, rank) * base::byte_size(b.dtype), base::kAlignment);
  }
  return (bytes + room - 1) / room;
}

}  // namespace dc::runtime::comm
