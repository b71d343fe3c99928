// DC_VECTOR_CLONES before a function: the compiler makes one copy per vector width and the loader
// picks the widest that the machine has.
//
// All copies give the same bits: the loops are written so that no sum is reordered, and
// floating-point contraction is off in the whole project. Sanitizers do not work before the loader
// has chosen a copy, so they get a single one.
#pragma once

#if defined(__GNUC__) && !defined(__clang__) && !defined(__NO_MATH_ERRNO__)
#error "CMakeLists.txt compiles native kernels with -fno-math-errno, and this file lost it"
#endif

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define DC_VECTOR_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define DC_VECTOR_CLONES
#endif
