// The cases that make_aten_cases.py writes: an instruction on a bench, and what PyTorch computed.
#pragma once

#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "tests/runtime/kernel/kernel_bench.h"

namespace dc::runtime {

struct ExpectedTensor {
  bool is_tensor = false;
  base::DType dtype = base::DType::F32;
  std::vector<int64_t> sizes, strides;
  std::vector<uint8_t> bytes;
};

struct AtenCase {
  std::string name, op;
  std::vector<std::string> arguments;  // lines of the file
  std::vector<ExpectedTensor> results;
  std::vector<ExpectedTensor> exact;  // floating-point results in f64, where the file has them
};

inline void PrintTo(const AtenCase& test, std::ostream* stream) {
  *stream << test.name << " " << test.op;
}

// All, or those of some operators.
std::vector<AtenCase> read_cases(const char* path, const std::set<std::string>& ops = {});
// Adds those of CUDA's flash attention: what the CPU's computes without a mask. PyTorch has no
// kernel of it where there is no GPU.
void add_cuda_attention(std::vector<AtenCase>& cases);
const std::vector<AtenCase>& aten_cases();
const AtenCase& aten_case(const std::string& name);

// Puts the inputs on the bench and returns the instruction with outputs that look as PyTorch's
// results do.
plan::Instruction place(KernelBench& bench, const AtenCase& test);

// Difference between an output on the bench and the expected tensor, relative to the largest
// expected magnitude; 0 means equal bits. Of integers that differ, infinite.
double difference(KernelBench& bench, int32_t output, const ExpectedTensor& expected);

// The bound of that difference for a native kernel, on CPUs and GPUs: a few roundings of the type
// that the result is stored in, and of f32, which is computed in.
double native_bound(base::DType dtype);

// The elements of a 16-bit output that are more than one number of their type away from those that
// are expected. What f32 sums in another order may leave where terms cancel is not counted.
int64_t beyond_last_bit(KernelBench& bench, int32_t output, const ExpectedTensor& expected);

// Whether results have values: what only takes memory has none.
bool has_values(const AtenCase& test);

// The element `index` of memory without gaps.
double element(const uint8_t* bytes, base::DType dtype, int64_t index);

}  // namespace dc::runtime
