// The words of runtime/kernel/cuda/kernels/warp.h for the double of NVRTC: C++ for the host, by
// what PTX's manual says about each instruction. Copies are done when they are waited for, so that
// a missing wait shows.
#pragma once

#include "runtime/kernel/scalar/elements.h"

namespace dc::runtime::kernel::cuda {

using scalar::uint16_t, scalar::uint32_t;

using SharedPlace = unsigned char*;
inline SharedPlace shared_place(unsigned char* shared) { return shared; }

namespace warp_words {

struct Matrices {
  const uint16_t* row;
  uint32_t elements[4];
};
template <bool kTransposes>
inline void load_all(void* const* lanes) {
  const auto lane = [&](int i) -> Matrices& { return *static_cast<Matrices*>(lanes[i]); };
  for (int t = 0; t < 32; ++t)
    for (int matrix = 0; matrix < 4; ++matrix) {
      const auto element = [&](int row, int column) -> uint32_t {
        return kTransposes ? lane(matrix * 8 + column).row[row]
                           : lane(matrix * 8 + row).row[column];
      };
      const int row = t / 4, column = t % 4 * 2;
      lane(t).elements[matrix] = element(row, column) | element(row, column + 1) << 16;
    }
}
template <bool kTransposes>
inline void load(uint32_t (&to)[4], const void* row) {
  Matrices own{static_cast<const uint16_t*>(row), {}};
  gpu_double_together(&own, load_all<kTransposes>);
  for (int i = 0; i < 4; ++i) to[i] = own.elements[i];
}

struct Product {
  float* sums;
  const uint32_t* left;
  uint32_t right[2];
};
template <typename T>
inline float half_of(uint32_t both, int which) {
  return scalar::load(T{static_cast<uint16_t>(both >> (16 * which))});
}
template <typename T>
inline void multiply_all(void* const* lanes) {
  const auto lane = [&](int i) -> Product& { return *static_cast<Product*>(lanes[i]); };
  float left[16][16], right[16][8];
  for (int t = 0; t < 32; ++t)
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 4; ++j)
        left[t / 4 + j % 2 * 8][t % 4 * 2 + j / 2 * 8 + i] = half_of<T>(lane(t).left[j], i);
      for (int j = 0; j < 2; ++j)
        right[t % 4 * 2 + j * 8 + i][t / 4] = half_of<T>(lane(t).right[j], i);
    }
  for (int t = 0; t < 32; ++t)
    for (int i = 0; i < 4; ++i) {
      const int row = t / 4 + i / 2 * 8, column = t % 4 * 2 + i % 2;
      float sum = lane(t).sums[i];
      for (int k = 0; k < 16; ++k) sum += left[row][k] * right[k][column];
      lane(t).sums[i] = sum;
    }
}

struct Exchanged {
  float own, other;
  unsigned bits;
};
inline void exchange_all(void* const* lanes) {
  const auto lane = [&](unsigned i) -> Exchanged& { return *static_cast<Exchanged*>(lanes[i]); };
  for (unsigned t = 0; t < 32; ++t) lane(t).other = lane(t ^ lane(t).bits).own;
}

}  // namespace warp_words

inline void load_matrices(uint32_t (&to)[4], SharedPlace row) { warp_words::load<false>(to, row); }
inline void load_transposed(uint32_t (&to)[4], SharedPlace row) { warp_words::load<true>(to, row); }
template <typename T>
inline void multiply_add(float (&sums)[4], const uint32_t (&left)[4], uint32_t right_0,
                         uint32_t right_1) {
  warp_words::Product own{sums, left, {right_0, right_1}};
  gpu_double_together(&own, warp_words::multiply_all<T>);
}
template <typename T>
inline uint32_t pack(float low, float high) {
  return scalar::store<T>(low).bits | static_cast<uint32_t>(scalar::store<T>(high).bits) << 16;
}
inline float exchange(float own, unsigned bits) {
  warp_words::Exchanged exchanged{own, 0, bits};
  gpu_double_together(&exchanged, warp_words::exchange_all);
  return exchanged.other;
}
inline float exp2_fast(float x) { return __builtin_exp2f(x); }
inline void copy_16(SharedPlace to, const void* from, bool exists) {
  gpu_double_copy(to, exists ? from : nullptr, 16);
}
inline void end_copy_group() { gpu_double_end_group(); }
template <int kLeft>
inline void wait_for_copies() {
  gpu_double_wait(kLeft);
}

}  // namespace dc::runtime::kernel::cuda
