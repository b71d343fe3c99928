// Copies of rows whose bytes lie next to each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "runtime/kernel/native/vector_clones.h"

namespace dc::runtime::kernel::native {

template <int64_t kBytes>
struct Piece {
  using Vector [[gnu::vector_size(kBytes), gnu::aligned(1), gnu::may_alias]] = uint8_t;
};
template <>
struct Piece<1> {
  using Vector = std::byte;
};

// A row of at least kBytes bytes in pieces of so many, of which the last two may overlap.
template <int64_t kBytes>
[[gnu::always_inline]] inline void copy_row(std::byte* to, const std::byte* from, int64_t bytes) {
  using Vector = typename Piece<kBytes>::Vector;
  const int64_t last = bytes - kBytes;
  for (int64_t at = 0; at < last; at += kBytes)
    *reinterpret_cast<Vector*>(to + at) = *reinterpret_cast<const Vector*>(from + at);
  *reinterpret_cast<Vector*>(to + last) = *reinterpret_cast<const Vector*>(from + last);
}
template <int64_t kBytes>
DC_VECTOR_CLONES void copy_rows_in(std::byte* to, int64_t to_step, const std::byte* from,
                                   int64_t from_step, int64_t rows, int64_t bytes) {
  for (int64_t row = 0; row < rows; ++row, to += to_step, from += from_step)
    copy_row<kBytes>(to, from, bytes);
}

// Rows of some bytes, at least one, with steps in bytes from one to the next.
inline void copy_rows(std::byte* to, int64_t to_step, const std::byte* from, int64_t from_step,
                      int64_t rows, int64_t bytes) {
  constexpr int64_t kLong = 4096;  // of shorter rows a call of libc costs too much
  if (bytes > kLong) {
    for (int64_t row = 0; row < rows; ++row)
      std::memcpy(to + row * to_step, from + row * from_step, static_cast<size_t>(bytes));
    return;
  }
  const auto copy = bytes >= 64   ? copy_rows_in<64>
                    : bytes >= 32 ? copy_rows_in<32>
                    : bytes >= 16 ? copy_rows_in<16>
                    : bytes >= 8  ? copy_rows_in<8>
                    : bytes >= 4  ? copy_rows_in<4>
                    : bytes >= 2  ? copy_rows_in<2>
                                  : copy_rows_in<1>;
  copy(to, to_step, from, from_step, rows, bytes);
}

}  // namespace dc::runtime::kernel::native
