// What the 32 threads of a warp do together, and copies into shared memory that go on while threads
// compute: instructions of GPUs from compute capability 8.0 on. The double of NVRTC has its own.
//
// Matrices have 16-bit elements. Of a matrix with 8 rows and columns a thread has, in one register,
// columns 2 (lane % 4) and the next one of row lane / 4; of a product with 16 rows and 8 columns it
// has these of row lane / 4, then those of row lane / 4 + 8.
#pragma once

#include "runtime/kernel/cuda/kernel_words.h"
#include "runtime/kernel/scalar/elements.h"

#ifdef DC_WARP_WORDS
#include DC_WARP_WORDS
#else

namespace dc::runtime::kernel::cuda {

using scalar::uint32_t;

// The block's shared memory, as much as it is launched with.
#define DC_SHARED_MEMORY(name) extern __shared__ __align__(1024) unsigned char name[]

using SharedPlace = uint32_t;  // in bytes
inline SharedPlace shared_place(const void* shared) {
  return static_cast<SharedPlace>(__cvta_generic_to_shared(shared));
}

// Four matrices; threads 8 i to 8 i + 7 say where the rows of matrix i begin, each on 16 bytes.
inline void load_matrices(uint32_t (&to)[4], SharedPlace row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row));
}
// The same, each transposed.
inline void load_transposed(uint32_t (&to)[4], SharedPlace row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row));
}

// sums += left right, in f32: left has 16 rows and columns (four matrices, column by column), right
// has 16 rows and 8 columns (two matrices, transposed).
template <typename T>
inline void multiply_add(float (&sums)[4], const uint32_t (&left)[4], uint32_t right_0,
                         uint32_t right_1) {
  if constexpr (scalar::kSame<T, scalar::BF16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right_0), "r"(right_1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right_0), "r"(right_1));
  }
}

// Rounded to nearest even; `low` is the element of the lower address.
template <typename T>
inline uint32_t pack(float low, float high) {
  uint32_t both;
  if constexpr (scalar::kSame<T, scalar::BF16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  }
  return both;
}

// The value of the thread whose lane differs in these bits.
inline float exchange(float own, unsigned bits) { return __shfl_xor_sync(0xffffffffu, own, bits); }
inline double exchange(double own, unsigned bits) {
  return __shfl_xor_sync(0xffffffffu, own, bits);
}
inline scalar::int64_t exchange(scalar::int64_t own, unsigned bits) {
  return __shfl_xor_sync(0xffffffffu, own, bits);
}

// Waits for the warp's other threads, and for what they have written.
inline void meet_warp() { __syncwarp(); }

// 2^x within 2 units in the last place; what would be subnormal is 0.
inline float exp2_fast(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

// Begins to copy 16 bytes, or to write zeros.
inline void copy_16(SharedPlace to, const void* from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(to), "l"(from), "r"(exists ? 16 : 0)
               : "memory");
}
// What the thread has begun to copy since the last call becomes a group.
inline void end_copy_group() { asm volatile("cp.async.commit_group;" : : : "memory"); }
// Waits for all groups of the thread but the last kLeft.
template <int kLeft>
inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kLeft) : "memory");
}

}  // namespace dc::runtime::kernel::cuda

#endif
