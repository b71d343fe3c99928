#include "runtime/kernel/native/attention/multiply.h"

namespace dc::runtime::kernel::native {
namespace {

using Multiply = void (*)(const SmallProduct&);

Multiply widest() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return multiply_v4;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return multiply_v3;
#endif
  return multiply_plain;
}

}  // namespace

void multiply(const SmallProduct& product) {
  static const Multiply chosen = widest();
  chosen(product);
}

}  // namespace dc::runtime::kernel::native
