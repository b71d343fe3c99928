// Fuzz target: instructions of native kernels that a plan from anywhere may hold. The provider
// refuses them, or its kernel reads and writes its tensors and its scratch and nothing else. Built
// with clang as a libFuzzer program; kernel_fuzz_test.cpp drives it with fixed seeds.
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/kernel_run.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dc::fuzz::run_mutated({data, size});
  return 0;
}
