// Changes of an instruction that make it wrong in one place or another, as bytes choose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tests/fuzz/kernel_instructions.h"

namespace dc::fuzz {

// Numbers read from bytes; zeros behind their end.
class Choices {
 public:
  explicit Choices(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  // In [0, n).
  size_t below(size_t n) {
    size_t number = next();
    if (n > 256) number = number << 8 | next();
    return n == 0 ? 0 : number % n;
  }
  bool one_in(size_t n) { return below(n) == n - 1; }
  bool ended() const { return bytes_.empty(); }

 private:
  uint8_t next() {
    if (bytes_.empty()) return 0;
    const uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }
  std::span<const uint8_t> bytes_;
};

template <typename T, size_t kCount>
T one_of(Choices& choices, const T (&list)[kCount]) {
  return list[choices.below(kCount)];
}

inline constexpr base::DType kElementTypes[] = {
    base::DType::U8,  base::DType::I8,  base::DType::I16, base::DType::I32,  base::DType::I64,
    base::DType::F16, base::DType::F32, base::DType::F64, base::DType::Bool, base::DType::BF16};

// None to four changes: of sizes (of one tensor or of all that have this size), dims, strides,
// element types, attributes, and of which operands and results there are.
void mutate(KernelInstruction& instruction, Choices& choices);

// Makes the tensors fit `limit` bytes, by strides of 0, and the results also by smaller sizes: a
// plan whose tensors lie outside of its arena is refused before any kernel is prepared. False if a
// tensor's number of elements does not fit an int64_t, which plans are refused for, too.
bool fit(KernelInstruction& instruction, int64_t limit);

}  // namespace dc::fuzz
