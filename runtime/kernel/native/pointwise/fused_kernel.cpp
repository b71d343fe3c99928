#include "runtime/kernel/native/pointwise/fused_kernel.h"

#include <algorithm>
#include <cstring>

namespace dc::runtime::kernel::native {
namespace {

template <typename T>
DC_VECTOR_CLONES void copy_rows(std::byte* to, int64_t to_step, const std::byte* from,
                                int64_t from_step, int64_t rows, int64_t n) {
  for (; rows > 0; --rows, to += to_step, from += from_step) {
    T* __restrict out = reinterpret_cast<T*>(to);
    const T* in = reinterpret_cast<const T*>(from);
    for (int64_t i = 0; i < n; ++i) out[i] = in[i];
  }
}

}  // namespace

FusedKernel::CopyRows row_copier(base::DType dtype) {
  const Lane lane = lane_of(dtype);
  if (dtype_of(lane) != dtype) return nullptr;
  if (lane == Lane::Bool) return copy_rows<uint8_t>;
  return lane == Lane::F32 ? copy_rows<float> : copy_rows<double>;
}

void FusedKernel::prepare(Block& block, Registers& memory) const {
  for (const auto& [slot, index] : registers)
    block.slots[slot] = memory.memory + index * kRegisterBytes;
  for (const auto& [slot, lanes] : fixed) block.slots[slot] = const_cast<std::byte*>(lanes);
}

FusedKernel::Bases FusedKernel::resolve(device::Stream& stream, const Offsets& from) const {
  Bases bases;
  const auto address = [&](const Side& side) {
    return static_cast<std::byte*>(stream.resolve(side.data)) + from[side.tensor] * side.element;
  };
  std::ranges::transform(in_place, bases.in_place.begin(), address);
  std::ranges::transform(loads, bases.loads.begin(), address, &Move::side);
  std::ranges::transform(stores, bases.stores.begin(), address, &Move::side);
  return bases;
}

base::Status FusedKernel::launch(device::Stream& stream) {
  run_from(stream, Offsets{});
  return {};
}

void FusedKernel::run_from(device::Stream& stream, const Offsets& from) const {
  Block block;
  Registers memory;
  prepare(block, memory);
  const Bases bases = resolve(stream, from);
  iteration.for_each_plane([&](const Offsets& offsets, int64_t rows, const Offsets&) {
    for (int64_t row = 0; row < rows; row += rows_at_once) {
      place(block, bases, [&](const Side& side) {
        return offsets[side.tensor] * side.element + row * side.step;
      });
      block.rows = std::min(rows_at_once, rows - row);
      block.when = row == 0 ? Move::When::EachPlane : Move::When::EachRow;
      for (int64_t left = iteration.inner(); left > 0; left -= length) {
        block.length = std::min(length, left);
        run(block);
        block.when = Move::When::EachBlock;
        for (const Side& side : in_place) block.slots[side.slot] += length * side.stride;
      }
    }
  });
}

void FusedKernel::run(Block& block) const {
  std::byte** at = block.loads.data();
  for (const Move& move : loads) {
    if (move.when <= block.when) read(move, *at, block);
    *at++ += length * move.side.stride;
  }
  block.index += length * index.stride;
  const int64_t n = block.rows * block.length;
  for (const Step& step : steps) {
    const void* in[kMostOperands] = {block.slots[step.in[0]], block.slots[step.in[1]],
                                     block.slots[step.in[2]]};
    step.run(step.context, block.slots[step.out], in, n);
  }
  at = block.stores.data();
  for (const Move& move : stores) {
    write(move, *at, block);
    *at++ += length * move.side.stride;
  }
}

void FusedKernel::read(const Move& move, const std::byte* from, const Block& block) const {
  // What stays for several blocks is read for the longest.
  const int64_t n = move.when == Move::When::EachBlock ? block.length : length;
  const int64_t rows = move.when == Move::When::EachPlane ? rows_at_once : block.rows;
  std::byte* to = block.slots[move.side.slot];
  move.window ? read_window(move, to, from, block, rows, n) : read_rows(move, to, n, from, rows, n);
}
// Of each row `count` lanes, in rows of n.
void FusedKernel::read_rows(const Move& move, std::byte* to, int64_t n, const std::byte* from,
                            int64_t rows, int64_t count) {
  if (move.copy != nullptr)
    return move.copy(to, n * move.lane_bytes, from, move.side.step, rows, count);
  for (int64_t row = 0; row < rows; ++row, from += move.side.step, to += n * move.lane_bytes)
    move.load(to, from, move.stride, count);
}
// Zeros, and what the window has among them.
void FusedKernel::read_window(const Move& move, std::byte* to, const std::byte* from,
                              const Block& block, int64_t rows, int64_t n) const {
  const Move::Window& window = *move.window;
  std::memset(to, 0, static_cast<size_t>(rows * n * move.lane_bytes));
  from -= window.begin * window.stride;
  if (index.stride != 0) {  // a part of each row
    const int64_t begin = std::clamp<int64_t>(window.begin - block.index, 0, n);
    const int64_t end = std::clamp<int64_t>(window.end - block.index, begin, n);
    to += begin * move.lane_bytes;
    from += begin * move.side.stride;
    if (begin < end) read_rows(move, to, n, from, rows, end - begin);
    return;
  }
  const auto row_of = [&](int64_t at) {  // some rows; all or none where the index is one for all
    return index.step == 0 ? (at <= block.index ? 0 : rows)
                           : std::clamp<int64_t>(at - block.index, 0, rows);
  };
  const int64_t begin = row_of(window.begin), end = row_of(window.end);
  if (begin < end)
    read_rows(move, to + begin * n * move.lane_bytes, n, from + begin * move.side.step, end - begin,
              n);
}
void FusedKernel::write(const Move& move, std::byte* to, const Block& block) const {
  const std::byte* from = block.slots[move.side.slot];
  const int64_t n = block.length;
  if (move.copy != nullptr)
    return move.copy(to, move.side.step, from, n * move.lane_bytes, block.rows, n);
  for (int64_t row = 0; row < block.rows; ++row, to += move.side.step) {
    move.store(to, move.stride, from, n);
    from += n * move.lane_bytes;
  }
}

}  // namespace dc::runtime::kernel::native
