#include "runtime/comm/tcp_cursor.h"

#include <cstring>

namespace dc::runtime::comm {

void Transfer::begin() {
  summing = Piece();
  summed = 0;
  sums_missing = opening == Flow::Contributions && advance(summing);
}

Flow Transfer::after(Flow flow) const {
  switch (flow) {
    case Flow::Header:
      return opening;
    case Flow::Contributions:
      return returns_sums ? Flow::Sums : Flow::Done;
    case Flow::Inputs:
    case Flow::Sums:
    case Flow::Done:
      break;
  }
  return Flow::Done;
}

Range Transfer::range_out(int peer, Flow flow, const CollectiveBuffer& b) const {
  const int64_t wire = flow == Flow::Sums ? 4 : base::byte_size(b.dtype);
  const int owned_by = owner(flow == Flow::Contributions ? peer : rank);
  const int64_t bytes = owned_elements(b, owned_by) * wire;
  if (bytes == 0) return {};
  if (flow == Flow::Inputs) return {static_cast<std::byte*>(b.input.data), bytes};
  void* whole = flow == Flow::Sums ? b.output.data : b.input.data;
  return {element(whole, owned_by * b.shard, wire), bytes};
}

Range Transfer::range_in(int peer, Flow flow, const CollectiveBuffer& b) const {
  const int64_t wire = flow == Flow::Sums ? 4 : base::byte_size(b.dtype);
  const int64_t bytes = owned_elements(b, owner(peer)) * wire;
  if (bytes == 0) return {};
  return {element(b.output.data, owner(peer) * b.shard, wire), bytes};
}

// How many bytes of the sums of a buffer exist.
int64_t Transfer::summed_bytes(size_t buffer, int64_t all) const {
  if (!sums_missing || buffer < summing.buffer) return all;
  return buffer == summing.buffer ? summing.first * 4 : 0;
}

int64_t Transfer::wire(const Piece& piece) const {
  return base::byte_size(buffers[piece.buffer].dtype);
}

bool Transfer::advance(Piece& piece) const {
  int64_t used = 0;
  if (piece.count > 0)
    used = base::round_up(piece.offset + piece.count * wire(piece), base::kAlignment);
  piece.first += piece.count;
  piece.count = 0;
  while (piece.buffer < buffers.size() &&
         piece.first >= owned_elements(buffers[piece.buffer], owner(rank))) {
    ++piece.buffer;
    piece.first = 0;
  }
  if (piece.buffer == buffers.size()) return false;
  if (used == kHalf) {
    ++piece.round;
    used = 0;
  }
  piece.offset = used;
  piece.count = std::min((kHalf - used) / wire(piece),
                         owned_elements(buffers[piece.buffer], owner(rank)) - piece.first);
  return true;
}

std::byte* Transfer::staged(int peer, const Piece& piece) const {
  const int place = (peer + size - rank - 1) % size;
  return staging + (int64_t{2} * place + piece.round % 2) * kHalf + piece.offset;
}

bool Transfer::next_out(int peer, Cursor& cursor, Header& header, Range* range) const {
  for (;;) {
    if (cursor.flow == Flow::Done) return false;
    if (cursor.flow == Flow::Header) {
      *range = {reinterpret_cast<std::byte*>(&header) + cursor.offset,
                static_cast<int64_t>(sizeof(header)) - cursor.offset};
      return true;
    }
    if (cursor.buffer == buffers.size()) {
      cursor = {after(cursor.flow), 0, 0, {}, 0};
      continue;
    }
    const Range whole = range_out(peer, cursor.flow, buffers[cursor.buffer]);
    const int64_t ready =
        cursor.flow == Flow::Sums ? summed_bytes(cursor.buffer, whole.bytes) : whole.bytes;
    if (cursor.offset < ready) {
      *range = {whole.data + cursor.offset, ready - cursor.offset};
      return true;
    }
    if (cursor.offset < whole.bytes) return false;
    ++cursor.buffer;
    cursor.offset = 0;
  }
}

bool Transfer::next_in(int peer, Cursor& cursor, Header& header, Range* range) const {
  for (;;) {
    if (cursor.flow == Flow::Done) return false;
    if (cursor.flow == Flow::Header) {
      *range = {reinterpret_cast<std::byte*>(&header) + cursor.offset,
                static_cast<int64_t>(sizeof(header)) - cursor.offset};
      return true;
    }
    if (cursor.flow == Flow::Contributions) {
      if (cursor.piece.count == 0 && !advance(cursor.piece)) {
        cursor.flow = after(cursor.flow);
        cursor.buffer = 0;
        continue;
      }
      // The half is still in use if the piece to be summed next is two rounds behind.
      if (cursor.piece.round >= summing.round + 2) return false;
      *range = {staged(peer, cursor.piece) + cursor.offset,
                cursor.piece.count * wire(cursor.piece) - cursor.offset};
      return true;
    }
    if (cursor.buffer == buffers.size()) {
      cursor.flow = after(cursor.flow);
      continue;
    }
    const Range whole = range_in(peer, cursor.flow, buffers[cursor.buffer]);
    if (cursor.offset < whole.bytes) {
      *range = {whole.data + cursor.offset, whole.bytes - cursor.offset};
      return true;
    }
    ++cursor.buffer;
    cursor.offset = 0;
  }
}

void Transfer::passed(Cursor& cursor, int64_t bytes, bool out) const {
  cursor.offset += bytes;
  if (cursor.flow == Flow::Header) {
    if (cursor.offset < static_cast<int64_t>(sizeof(Header))) return;
    cursor = {opening, 0, 0, {}, 0};
  } else if (cursor.flow == Flow::Contributions && !out) {
    if (cursor.offset < cursor.piece.count * wire(cursor.piece)) return;
    cursor.offset = 0;
    ++cursor.pieces;
    if (!advance(cursor.piece)) {
      cursor.flow = after(cursor.flow);
      cursor.buffer = 0;
    }
  }
}

int Transfer::collect(int peer, Cursor cursor, Header& header, bool out,
                      std::span<iovec> list) const {
  size_t count = 0;
  Range range;
  while (count < list.size() &&
         (out ? next_out(peer, cursor, header, &range) : next_in(peer, cursor, header, &range))) {
    list[count++] = {range.data, static_cast<size_t>(range.bytes)};
    passed(cursor, range.bytes, out);
  }
  return static_cast<int>(count);
}

void Transfer::move(int peer, Cursor& cursor, Header& header, bool out, int64_t bytes) const {
  Range range;
  while (bytes > 0 &&
         (out ? next_out(peer, cursor, header, &range) : next_in(peer, cursor, header, &range))) {
    const int64_t part = std::min(bytes, range.bytes);
    passed(cursor, part, out);
    bytes -= part;
  }
  out ? next_out(peer, cursor, header, &range) : next_in(peer, cursor, header, &range);
}

void Transfer::copy_own() const {
  for (const CollectiveBuffer& b : buffers) {
    const Range own = range_out(rank, Flow::Inputs, b), target = range_in(rank, Flow::Inputs, b);
    if (own.bytes > 0 && own.data != target.data)
      std::memcpy(target.data, own.data, static_cast<size_t>(own.bytes));
  }
}

}  // namespace dc::runtime::comm
