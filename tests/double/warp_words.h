// The words of runtime/kernel/cuda/kernels/warp.h and warpgroup.h for the double of NVRTC: C++ for
// the host, by what PTX's manual says about each instruction. Copies, and products of four warps,
// are done when they are waited for, so that a missing wait shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

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

template <typename T>
struct Exchanged {
  T own, other;
  unsigned bits;
};
template <typename T>
inline void exchange_all(void* const* lanes) {
  const auto lane = [&](unsigned i) -> Exchanged<T>& {
    return *static_cast<Exchanged<T>*>(lanes[i]);
  };
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
template <typename T>
inline T exchange(T own, unsigned bits) {
  warp_words::Exchanged<T> exchanged{own, 0, bits};
  gpu_double_together(&exchanged, warp_words::exchange_all<T>);
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

// Four warps: each makes its own 16 rows.
using MatrixPlace = const unsigned char*;
inline MatrixPlace rows_at(SharedPlace place) { return place; }
inline MatrixPlace further(MatrixPlace place, int bytes) { return place + bytes; }
inline int same_in_warp(int number) { return number; }

namespace warp_words {

// Of rows of 128 bytes whose 16-byte words are exchanged.
template <typename T>
inline float element(const unsigned char* place, int row, int column) {
  const uintptr_t at = reinterpret_cast<uintptr_t>(place) + row * 128 + column * 2,
                  exchanged = at ^ (at >> 7 & 7) << 4;
  return scalar::load(*reinterpret_cast<const T*>(exchanged));
}

struct GroupProduct {
  void (*all)(void* const* lanes);
  float (*sums)[4];
  uint32_t left[4];
  MatrixPlace left_rows, right;  // the former: in place of `left`
  bool adds, ends_group;
  bool has_left_terms = false;  // left_rows has a row for each term
};
template <typename T>
inline void multiply_group(void* const* lanes) {
  const auto lane = [&](int i) -> GroupProduct& { return *static_cast<GroupProduct*>(lanes[i]); };
  const GroupProduct& any = lane(0);
  const int first_row = static_cast<int>(gpu_double_place()->thread[0]) / 32 % 4 * 16;
  float left[16][16], right[16][64];
  for (int k = 0; k < 16; ++k)
    for (int c = 0; c < 64; ++c)
      right[k][c] = any.left_rows != nullptr && !any.has_left_terms ? element<T>(any.right, c, k)
                                                                    : element<T>(any.right, k, c);
  for (int t = 0; t < 32; ++t)
    for (int j = 0; j < 4; ++j)
      for (int i = 0; i < 2; ++i) {
        const int row = t / 4 + j % 2 * 8, column = t % 4 * 2 + j / 2 * 8 + i;
        left[row][column] = any.has_left_terms ? element<T>(any.left_rows, column, first_row + row)
                            : any.left_rows != nullptr
                                ? element<T>(any.left_rows, first_row + row, column)
                                : half_of<T>(lane(t).left[j], i);
      }
  for (int t = 0; t < 32; ++t)
    for (int c = 0; c < 8; ++c)
      for (int i = 0; i < 4; ++i) {
        const int row = t / 4 + i / 2 * 8, column = c * 8 + t % 4 * 2 + i % 2;
        float sum = any.adds ? lane(t).sums[c][i] : 0.0f;
        for (int k = 0; k < 16; ++k) sum += left[row][k] * right[k][column];
        lane(t).sums[c][i] = sum;
      }
}
// What the thread has begun.
inline std::vector<GroupProduct>& begun() {
  static thread_local std::vector<GroupProduct> all[1024];
  return all[gpu_double_place()->thread[0]];
}

}  // namespace warp_words

template <typename T>
inline void begin_product(float (&sums)[8][4], MatrixPlace left, MatrixPlace right, bool adds) {
  warp_words::begun().push_back(
      {warp_words::multiply_group<T>, sums, {}, left, right, adds, false});
}
template <typename T>
inline void begin_product(float (&sums)[8][4], const uint32_t (&left)[4], MatrixPlace right) {
  warp_words::begun().push_back({warp_words::multiply_group<T>,
                                 sums,
                                 {left[0], left[1], left[2], left[3]},
                                 nullptr,
                                 right,
                                 true,
                                 false});
}
template <typename T>
inline void begin_product_of_terms(float (&s)[8][4], MatrixPlace left, MatrixPlace right,
                                   bool adds) {
  warp_words::begun().push_back(
      {warp_words::multiply_group<T>, s, {}, left, right, adds, false, true});
}
inline void begin_products() {}
inline void end_products() { warp_words::begun().back().ends_group = true; }
template <int kLeft>
inline void wait_for_products() {
  gpu_double_meet_group();
  auto& begun = warp_words::begun();
  int left = 0;
  size_t count = begun.size();
  while (count > 0 && left + (begun[count - 1].ends_group ? 1 : 0) <= kLeft) {
    left += begun[count - 1].ends_group ? 1 : 0;
    --count;
  }
  for (size_t i = 0; i < count; ++i) gpu_double_together(&begun[i], begun[i].all);
  begun.erase(begun.begin(), begun.begin() + static_cast<std::ptrdiff_t>(count));
}
template <typename Registers>
inline void hold(Registers&) {}
inline void show_copies() {}

namespace warp_words {

struct Stored {
  unsigned char* row;
  const uint32_t* elements;
};
inline void store_all(void* const* lanes) {
  const auto lane = [&](int i) -> Stored& { return *static_cast<Stored*>(lanes[i]); };
  for (int t = 0; t < 32; ++t)
    for (int matrix = 0; matrix < 4; ++matrix)
      std::memcpy(lane(matrix * 8 + t / 4).row + t % 4 * 4, &lane(t).elements[matrix], 4);
}

}  // namespace warp_words

inline void store_matrices(SharedPlace row, const uint32_t (&from)[4]) {
  warp_words::Stored own{row, from};
  gpu_double_together(&own, warp_words::store_all);
}
template <int kRegisters>
inline void give_registers() {}
template <int kRegisters>
inline void take_registers() {}
inline void meet_warp() {
  gpu_double_together(nullptr, [](void* const*) {});
}
template <int kThreads>
inline void meet(int barrier) {
  gpu_double_meet(barrier, kThreads, true);
}
template <int kThreads>
inline void come(int barrier) {
  gpu_double_meet(barrier, kThreads, false);
}
// Blocks run one after the other.
inline uint32_t take_number(uint32_t* next) { return (*next)++; }
inline void wait_for_turn(const uint32_t* turn, uint32_t own) {
  if (*turn == own) return;
  std::fputs("the double of a GPU: a block waits for the turn of one that has not run\n", stderr);
  std::abort();
}
inline void give_turn(uint32_t* turn, uint32_t next) { *turn = next; }
inline void begin_write(float* to, SharedPlace from, int bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}
inline void begin_add(float* to, SharedPlace from, int bytes) {
  for (int i = 0; i < bytes / 4; ++i) to[i] += reinterpret_cast<const float*>(from)[i];
}
inline void wait_until_read() {}
inline void wait_until_written() {}
inline void order_copies() {}
inline void store_4(SharedPlace to, const float (&numbers)[4]) {
  std::memcpy(to, numbers, sizeof numbers);
}

}  // namespace dc::runtime::kernel::cuda
