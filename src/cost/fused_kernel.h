// FusedKernel: a fused kernel's signature taken apart, for those who estimate its time.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "src/base/kernel_signature.h"
#include "src/cost/cost_model.h"

namespace dc::cost {

// Overloads that fused kernels can have, "aten.add.Tensor": the table's, in its order.
const std::vector<std::string_view>& fused_primitives();

struct FusedOperation {
  size_t primitive = 0;  // in fused_primitives(); of a reduction it says nothing
  base::DType computes = base::DType::F32, dtype = base::DType::F32;  // reads; of its value
  std::vector<size_t> reads;                                          // values of operations
  size_t tensors = 0;  // that it reads, values of operations among them
  size_t streams = 0;  // of these: operands with an element for each of its value's
  bool is_result = false;
  // As a separate kernel.
  double read_bytes = 0, written_bytes = 0;
  Estimate apart;
};

// A result, or an operand as it is read for the results' shape.
struct FusedTensor {
  // How a block of elements lies: next to each other; in rows that do not follow each other; one
  // element for a row; with gaps.
  enum class Access : uint8_t { Dense, Rows, Repeated, Strided };
  base::DType dtype = base::DType::F32;
  Access access = Access::Dense;
  double bytes = 0;  // that are read or written, each counted once
};
inline constexpr size_t kAccesses = 4;

struct FusedKernel {
  double elements = 0;  // of each value
  double rows = 0;      // runs of elements over which no tensor's step changes
  double blocks = 0;    // that the kernel handles one after the other
  std::vector<FusedOperation> operations;
  std::vector<FusedTensor> operands, results;
  size_t reductions = 0;  // of the operations

  double bytes() const;                              // of all operands and results
  bool is_stream(const FusedTensor& operand) const;  // with an element for each of a value's
};

// `time`: of a native kernel, for FusedOperation::apart. Nothing for other kernels, and for text
// that no fused kernel has: signatures come from files.
using KernelTime = std::function<Estimate(const base::KernelSignature&)>;
std::optional<FusedKernel> describe_fused(const base::KernelSignature& signature,
                                          const KernelTime& time);

// From the operations' times apart: one start of a kernel, the bytes of operands and results once,
// and what each operation took beyond its own start and bytes. Never more than all apart.
base::Nanos closed_form_time(const FusedKernel& kernel, base::Nanos start, double bytes_per_ns);

// Estimates the time of a fused kernel from its description.
class FusedEstimator {
 public:
  virtual ~FusedEstimator() = default;
  virtual base::Nanos time(const FusedKernel& kernel) const = 0;
};

}  // namespace dc::cost
