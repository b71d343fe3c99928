#include "runtime/kernel/native/attention/multiply.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace dc::runtime::kernel::native {

#if defined(__x86_64__)
namespace {

using Multiply = void (*)(const SmallProduct&);

Multiply widest(Multiply v4, Multiply v3, Multiply plain) {
  if (__builtin_cpu_supports("avx512f")) return v4;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return v3;
  return plain;
}

// Tiles are a state of threads that Linux keeps only for processes that have asked.
bool ask_for_amx() {
  constexpr uint32_t kBf16 = 1u << 22, kTiles = 1u << 24;         // of EDX
  constexpr int64_t kRequestPermission = 0x1023, kTileData = 18;  // of arch_prctl
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__builtin_cpu_supports("avx512f") || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
    return false;
  if ((edx & kBf16) == 0 || (edx & kTiles) == 0) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

void multiply(const SmallProduct& product) {
  static const Multiply chosen = widest(multiply_v4, multiply_v3, multiply_plain);
  chosen(product);
}

void multiply_bf16(const SmallProduct& product) {
  static const Multiply chosen = widest(multiply_bf16_v4, multiply_bf16_v3, multiply_bf16_plain);
  if (has_amx()) return multiply_bf16_amx(product);
  const FlushToZero flush;
  chosen(product);
}

bool has_amx() {
  static const bool has = ask_for_amx();
  return has;
}

FlushToZero::FlushToZero() : before_(_mm_getcsr()) {
  constexpr uint32_t kResultsAndOperands = 0x8040;
  _mm_setcsr(before_ | kResultsAndOperands);
}
FlushToZero::~FlushToZero() { _mm_setcsr(before_); }

#else

void multiply(const SmallProduct& product) { multiply_plain(product); }
void multiply_bf16(const SmallProduct& product) { multiply_bf16_plain(product); }
bool has_amx() { return false; }
// Where there is no such mode here, subnormal numbers stay what they are.
FlushToZero::FlushToZero() : before_(0) {}
FlushToZero::~FlushToZero() = default;

#endif

}  // namespace dc::runtime::kernel::native
