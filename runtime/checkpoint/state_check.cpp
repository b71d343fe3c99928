#include "runtime/checkpoint/state_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/kernel/elements.h"

namespace dc::runtime::checkpoint {
namespace {

using base::DType;
using base::Result;

constexpr int64_t kChunkElements = 1 << 16;

// Infinities and NaN have all exponent bits set; only NaN has others below them.
template <typename Word>
bool any_refused(std::span<const std::byte> elements, Word exponent, Word rest,
                 bool may_be_infinite) {
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
  switch (dtype) {
    case DType::F32:
      return !any_refused<uint32_t>(elements, 0x7F800000, 0x007FFFFF, infinite);
    case DType::BF16:
      return !any_refused<uint16_t>(elements, 0x7F80, 0x007F, infinite);
    case DType::F16:
      return !any_refused<uint16_t>(elements, 0x7C00, 0x03FF, infinite);
    case DType::F64:
      return !any_refused<uint64_t>(elements, 0x7FF0000000000000, 0x000FFFFFFFFFFFFF, infinite);
    case DType::U8:
    case DType::I8:
    case DType::I16:
    case DType::I32:
    case DType::I64:
    case DType::Bool:
      return true;
  }
  return true;
}

Result<std::string> find_non_finite(const std::vector<StatePart>& parts,
                                    const StateMemory& memory) {
  std::vector<std::byte> chunk(kChunkElements * sizeof(double));
  for (const StatePart& part : parts) {
    if (!base::is_floating(part.piece.dtype)) continue;
    for (int64_t done = 0; done < part.piece.count; done += kChunkElements) {
      const int64_t count = std::min(kChunkElements, part.piece.count - done);
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
