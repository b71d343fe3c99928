// What four warps do together, the first of which is the block's 4 i-th: products of matrices that
// go on while threads compute. Instructions of compute capability 9.0 alone (sm_90a). The double of
// NVRTC has its own.
//
// Rows of matrices in shared memory have 64 columns in 128 bytes, whose 16-byte words are
// exchanged: word i of row r lies where word i ^ r % 8 would, and row 0 lies on 1024 bytes.
#pragma once

#include "runtime/kernel/cuda/kernels/warp.h"

namespace dc::runtime::kernel::cuda {

inline constexpr int kGroupThreads = 128, kGroupRows = 64, kPanelColumns = 64,
                     kPanelPitch = 2 * kPanelColumns;

}  // namespace dc::runtime::kernel::cuda

#ifndef DC_WARP_WORDS

namespace dc::runtime::kernel::cuda {

using scalar::uint64_t;

// PTX's descriptor of a matrix: 8 rows are 1024 bytes, words are exchanged as above.
using MatrixPlace = uint64_t;
// From some row and one of the 16-column parts on.
inline MatrixPlace rows_at(SharedPlace place) {
  constexpr uint64_t kExchanged = uint64_t{1} << 62, kBytesOf8Rows = uint64_t{1024 >> 4} << 32,
                     kUnused = uint64_t{1} << 16;
  return kExchanged | kBytesOf8Rows | kUnused | ((place & 0x3ffff) >> 4);
}

// From so many bytes further on, a multiple of 16.
inline MatrixPlace further(MatrixPlace place, int bytes) {
  constexpr uint64_t kHigh = ~uint64_t{0xffffffff};
  return (place & kHigh) | static_cast<uint32_t>(static_cast<uint32_t>(place) + bytes / 16);
}
// What all threads of a warp have; the compiler does not know that they do.
inline int same_in_warp(int number) { return __shfl_sync(0xffffffffu, number, 0); }

#define DC_GROUP_SUMS                                                      \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"

#define DC_GROUP_REGISTERS(s)                                                                   \
  "+f"(s[0][0]), "+f"(s[0][1]), "+f"(s[0][2]), "+f"(s[0][3]), "+f"(s[1][0]), "+f"(s[1][1]),     \
      "+f"(s[1][2]), "+f"(s[1][3]), "+f"(s[2][0]), "+f"(s[2][1]), "+f"(s[2][2]), "+f"(s[2][3]), \
      "+f"(s[3][0]), "+f"(s[3][1]), "+f"(s[3][2]), "+f"(s[3][3]), "+f"(s[4][0]), "+f"(s[4][1]), \
      "+f"(s[4][2]), "+f"(s[4][3]), "+f"(s[5][0]), "+f"(s[5][1]), "+f"(s[5][2]), "+f"(s[5][3]), \
      "+f"(s[6][0]), "+f"(s[6][1]), "+f"(s[6][2]), "+f"(s[6][3]), "+f"(s[7][0]), "+f"(s[7][1]), \
      "+f"(s[7][2]), "+f"(s[7][3])

// sums = left right^T, or are added to: 64 rows, of each warp 16 as in multiply_add(), and 64
// columns, 16 terms. Both operands have a row for each row or column of the product.
#define DC_BEGIN_PRODUCT(type)                                                       \
  asm volatile(                                                                      \
      "{ .reg .pred adds; setp.ne.b32 adds, %34, 0; "                                \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" DC_GROUP_SUMS \
      "}, %32, %33, adds, 1, 1, 0, 0; }"                                             \
      : DC_GROUP_REGISTERS(s)                                                        \
      : "l"(left), "l"(right), "r"(adds ? 1 : 0))
template <typename T>
inline void begin_product(float (&s)[8][4], MatrixPlace left, MatrixPlace right, bool adds) {
  if constexpr (scalar::kSame<T, scalar::BF16>) {
    DC_BEGIN_PRODUCT("bf16");
  } else {
    DC_BEGIN_PRODUCT("f16");
  }
}
#undef DC_BEGIN_PRODUCT

// sums += left right: `right` has a row for each term.
#define DC_BEGIN_PRODUCT(type)                                                                \
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" DC_GROUP_SUMS \
               "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"                                    \
               : DC_GROUP_REGISTERS(s)                                                        \
               : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right))
template <typename T>
inline void begin_product(float (&s)[8][4], const uint32_t (&left)[4], MatrixPlace right) {
  if constexpr (scalar::kSame<T, scalar::BF16>) {
    DC_BEGIN_PRODUCT("bf16");
  } else {
    DC_BEGIN_PRODUCT("f16");
  }
}
#undef DC_BEGIN_PRODUCT

// sums = left right, or are added to: both operands have a row for each term.
#define DC_BEGIN_PRODUCT(type)                                                       \
  asm volatile(                                                                      \
      "{ .reg .pred adds; setp.ne.b32 adds, %34, 0; "                                \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" DC_GROUP_SUMS \
      "}, %32, %33, adds, 1, 1, 1, 1; }"                                             \
      : DC_GROUP_REGISTERS(s)                                                        \
      : "l"(left), "l"(right), "r"(adds ? 1 : 0))
template <typename T>
inline void begin_product_of_terms(float (&s)[8][4], MatrixPlace left, MatrixPlace right,
                                   bool adds) {
  if constexpr (scalar::kSame<T, scalar::BF16>) {
    DC_BEGIN_PRODUCT("bf16");
  } else {
    DC_BEGIN_PRODUCT("f16");
  }
}
#undef DC_BEGIN_PRODUCT

// After registers of products have been written, before the first product.
inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
// What was begun since the last call becomes a group.
inline void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }
// Waits for all groups but the last kLeft.
template <int kLeft>
inline void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(kLeft) : "memory");
}
// What is computed from these registers stays on its side.
inline void hold(float& number) { asm volatile("" : "+f"(number) : : "memory"); }
inline void hold(uint32_t& number) { asm volatile("" : "+r"(number) : : "memory"); }
template <typename Number, int kRows, int kColumns>
inline void hold(Number (&registers)[kRows][kColumns][4]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
#pragma unroll
      for (int i = 0; i < 4; ++i) hold(registers[r][c][i]);
}
// What load_matrices() loads.
inline void store_matrices(SharedPlace row, const uint32_t (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               :
               : "r"(row), "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
}
// What the thread has copied or stored can be read by products.
inline void show_copies() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }

// Registers of a thread, as all threads of four warps ask for: fewer than before, or more.
template <int kRegisters>
inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(kRegisters));
}
template <int kRegisters>
inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(kRegisters));
}

// Barriers 1 to 15 of the block, for kThreads of its threads: the first waits until all have come.
template <int kThreads>
inline void meet(int barrier) {
  asm volatile("bar.sync %0, %1;" : : "r"(barrier), "n"(kThreads) : "memory");
}
template <int kThreads>
inline void come(int barrier) {
  asm volatile("bar.arrive %0, %1;" : : "r"(barrier), "n"(kThreads) : "memory");
}

// Blocks that write the same memory one after the other. Each takes a number: who has a smaller one
// runs already, so it may be waited for.
inline uint32_t take_number(uint32_t* next) { return atomicAdd(next, 1u); }
inline void wait_for_turn(const uint32_t* turn, uint32_t own) {
  uint32_t now;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory");
  } while (now != own);
}
// What threads that this one has met have written is seen by those whose turn it becomes.
inline void give_turn(uint32_t* turn, uint32_t next) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" : : "l"(turn), "r"(next) : "memory");
}
// Of one thread: bytes of shared memory, on 16, that begin to be written or added to f32 in memory.
inline void begin_write(float* to, SharedPlace from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
               :
               : "l"(to), "r"(from), "r"(bytes)
               : "memory");
}
inline void begin_add(float* to, SharedPlace from, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;"
               :
               : "l"(to), "r"(from), "r"(bytes)
               : "memory");
}
// Waits until what the thread has begun has been read, or written.
inline void wait_until_read() {
  asm volatile("cp.async.bulk.commit_group;\n cp.async.bulk.wait_group.read 0;" : : : "memory");
}
inline void wait_until_written() { asm volatile("cp.async.bulk.wait_group 0;" : : : "memory"); }
// Between what threads and what copies of begin_write() and begin_add() do.
inline void order_copies() { asm volatile("fence.proxy.async;" : : : "memory"); }
inline void store_4(SharedPlace to, const float (&numbers)[4]) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};"
               :
               : "r"(to), "f"(numbers[0]), "f"(numbers[1]), "f"(numbers[2]), "f"(numbers[3])
               : "memory");
}

}  // namespace dc::runtime::kernel::cuda

#endif
