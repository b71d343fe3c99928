#include "runtime/checkpoint/state_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/kernel/elements.h"

namespace dc::runtime::checkpoint {
namespace {

using base::DType;
using base::Result;

// Infinities and NaN have all exponent bits set; only NaN has others below them.
template <typename Word>
bool any_refused(std::span<const std::byte> elements, uint64_t exponent_bits,
                 bool may_be_infinite) {
  const auto exponent = static_cast<Word>(exponent_bits);
  const auto rest = static_cast<Word>((exponent & ~(exponent - 1)) - 1);
  bool refused = false;
  for (size_t at = 0; at < elements.size(); at += sizeof(Word)) {
    Word word = 0;
    std::memcpy(&word, elements.data() + at, sizeof(Word));
    const bool special = (word & exponent) == exponent;
    refused |= special && (!may_be_infinite || (word & rest) != 0);
  }
  return refused;
}

}  // namespace

bool is_savable(ValueKind kind, DType dtype, std::span<const std::byte> elements) {
  const bool infinite = kind == ValueKind::Buffer;
  const uint64_t exponent = base::exponent_bits(dtype);
  if (exponent == 0) return true;
  switch (base::byte_size(dtype)) {
    case 1:
      return !any_refused<uint8_t>(elements, exponent, infinite);
    case 2:
      return !any_refused<uint16_t>(elements, exponent, infinite);
    case 4:
      return !any_refused<uint32_t>(elements, exponent, infinite);
    default:
      return !any_refused<uint64_t>(elements, exponent, infinite);
  }
}

Result<std::string> find_non_finite(const std::vector<StatePart>& parts,
                                    const StateMemory& memory) {
  std::vector<std::byte> chunk(StateMemory::kChunkElements * sizeof(double));
  for (const StatePart& part : parts) {
    if (!base::is_floating(part.piece.dtype)) continue;
    for (int64_t done = 0; done < part.piece.count; done += StateMemory::kChunkElements) {
      const int64_t count = std::min(StateMemory::kChunkElements, part.piece.count - done);
      DC_RETURN_IF_ERROR(memory.read(part.tensor, part.tensor_first + done, count, chunk.data()));
      const auto bytes = static_cast<size_t>(count * base::byte_size(part.piece.dtype));
      if (!is_savable(part.piece.value.kind, part.piece.dtype, {chunk.data(), bytes})) {
        return describe(part.piece.value);
      }
    }
  }
  return std::string();
}

}  // namespace dc::runtime::checkpoint
