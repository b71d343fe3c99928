// Products of f32 matrices that lie in the cache: the inner products of attention.
//
// multiply: c[i][j] is the sum over k of a[i][k] * b[k][j], k in order, each step one fused
// multiply-add.
//
// multiply_bf16: of matrices that hold numbers of bf16, in the order of AMX's TDPBF16PS (Intel,
// Software Developer's Manual), so that a CPU with AMX may use it: of 32 k at a time, the sum over
// the even ones and the sum over the odd ones, each from zero and by fused multiply-adds, are
// added, and their sum to c. What is smaller than the smallest normal f32 counts as zero, before
// and after.
//
// So bits depend neither on the instruction set nor on how the matrices are cut into tiles.
#pragma once

#include <cstdint>

namespace dc::runtime::kernel::native {

inline constexpr int64_t kColumns = 16;    // what the number of columns is a multiple of
inline constexpr int64_t kPairDepth = 32;  // k that multiply_bf16 sums before it adds to c

// All distances in elements.
struct SmallProduct {
  float* c;
  int64_t c_row;  // from one row to the next; columns lie one behind the other
  const float* a;
  int64_t a_row, a_column;  // of multiply_bf16, one of them is 1
  const float* b;
  int64_t b_row;
  int64_t rows, depth, columns;
  bool adds;  // to what c holds
};

void multiply(const SmallProduct& product);
void multiply_bf16(const SmallProduct& product);

// One for each instruction set; the widest that the CPU has is taken. Those of bf16 need a thread
// that flushes small numbers to zero (FlushToZero), AMX does so by itself.
void multiply_v4(const SmallProduct& product);     // AVX-512
void multiply_v3(const SmallProduct& product);     // AVX2 and FMA
void multiply_plain(const SmallProduct& product);  // any CPU; fmaf may be a call
void multiply_bf16_amx(const SmallProduct& product);
void multiply_bf16_v4(const SmallProduct& product);
void multiply_bf16_v3(const SmallProduct& product);
void multiply_bf16_plain(const SmallProduct& product);

// Whether CPU and kernel let this process use AMX for bf16; asks the kernel for it.
bool has_amx();

// While it lives, what this thread computes in f32 takes and makes no subnormal numbers.
class FlushToZero {
 public:
  FlushToZero();
  ~FlushToZero();
  FlushToZero(const FlushToZero&) = delete;
  FlushToZero& operator=(const FlushToZero&) = delete;

 private:
  uint32_t before_;
};

}  // namespace dc::runtime::kernel::native
