// What goes over one connection in one direction during a collective: the ranges of memory, in
// order. Both ends derive it from their own buffers, which agree in all sizes.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>

#include "runtime/comm/buffers.h"

namespace dc::runtime::comm {

struct Header {
  uint64_t fingerprint = 0, sequence = 0;
};

// A part of this rank's range of one buffer that is summed at once. Pieces are numbered through
// all buffers; a round is what fits into one half of a peer's staging area.
struct Piece {
  size_t buffer = 0;
  int64_t first = 0, count = 0;   // elements within the range
  int64_t round = 0, offset = 0;  // bytes in the half
};

enum class Flow : uint8_t { Header, Inputs, Contributions, Sums, Done };

struct Cursor {
  Flow flow = Flow::Header;
  size_t buffer = 0;
  int64_t offset = 0;  // bytes of the header, the range or the piece that are through
  Piece piece;         // where contributions arrive
  int64_t pieces = 0;  // that arrived whole
};

struct Range {
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

inline constexpr int64_t kHalf = int64_t{256} << 10;  // bytes of staging per peer, twice

// One collective as this rank sees it. Ranks and peers are places in the communicator.
struct Transfer {
  std::span<const CollectiveBuffer> buffers;
  int rank = 0, size = 1, first = 0;  // rank `first` owns the first ranges
  Flow opening = Flow::Inputs;        // what follows the header: Inputs or Contributions
  bool returns_sums = false;          // Sums follow Contributions
  std::byte* staging = nullptr;       // 2 * kHalf for each peer

  Piece summing;              // the next piece to sum
  bool sums_missing = false;  // there is such a piece
  int64_t summed = 0;         // pieces

  void begin();
  // The next bytes in that direction; false if there are none (left, or until more is summed).
  bool next_out(int peer, Cursor& cursor, Header& header, Range* range) const;
  bool next_in(int peer, Cursor& cursor, Header& header, Range* range) const;
  // The cursor moves by bytes of the range that the function above has just given.
  void passed(Cursor& cursor, int64_t bytes, bool out) const;
  // Writes the next ranges into the list; returns how many.
  int collect(int peer, Cursor cursor, Header& header, bool out, std::span<iovec> list) const;
  // That many bytes of them are through. Leaves the cursor at something to do, or at Done.
  void move(int peer, Cursor& cursor, Header& header, bool out, int64_t bytes) const;

  bool advance(Piece& piece) const;  // to the next one; false if there is none
  std::byte* staged(int peer, const Piece& piece) const;
  void copy_own() const;  // this rank's input to its range of the output

 private:
  int owner(int peer) const { return (peer + size - first) % size; }
  Flow after(Flow flow) const;
  Range range_out(int peer, Flow flow, const CollectiveBuffer& buffer) const;
  Range range_in(int peer, Flow flow, const CollectiveBuffer& buffer) const;
  int64_t summed_bytes(size_t buffer, int64_t all) const;
  int64_t wire(const Piece& piece) const;
};

}  // namespace dc::runtime::comm
