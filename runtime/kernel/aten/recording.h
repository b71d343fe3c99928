// What an op allocates and returns, learned by running it once on dummy memory.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <vector>

#include "runtime/kernel/aten/scratch_layout.h"
#include "runtime/kernel/kernel.h"
#include "runtime/kernel/strided_copy.h"

namespace dc::runtime::kernel::aten {

struct Produced {
  bool is_tensor = false;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  std::vector<int64_t> sizes, strides;
};

struct Recording {
  std::vector<Allocation> allocations;  // in order
  // Per allocation: the instruction's output whose planned bytes it is served from, or -1.
  std::vector<int32_t> output;
  // Per result: the op makes it larger or in another order than planned. It does so in scratch, and
  // the kernel copies it.
  std::vector<bool> is_copied;
  std::vector<Produced> results;  // at least one per output of the instruction
  ScratchLayout scratch;
};

// Equal for instructions that behave alike. A comparison with 1 allocates otherwise than one with
// 1.0, which the signature takes for the same number.
struct RecordingKey {
  base::KernelSignature signature;
  std::vector<plan::ArgKind> kinds;  // of the arguments
  int threads = 1;
  auto operator<=>(const RecordingKey&) const = default;
};
RecordingKey recording_key(const plan::Plan& plan, const plan::Instruction& instruction,
                           int threads);

// Refused (81) if the op fails on zeros or returns fewer results than the plan wants.
base::Result<Recording> record(const c10::OperatorHandle& op, const plan::Plan& plan,
                               const plan::Instruction& instruction);

// The tensors an op left on the stack, lists flattened; `visit(index, tensor)` gets null for
// anything else.
template <typename Visit>
void for_each_result(const std::vector<c10::IValue>& stack, Visit visit) {
  size_t index = 0;
  for (const c10::IValue& value : stack) {
    if (value.isTensorList()) {
      const c10::List<at::Tensor> list = value.toTensorList();
      for (size_t i = 0; i < list.size(); ++i) {
        const at::Tensor& tensor = list.get(i);
        visit(index++, &tensor);
      }
    } else if (value.isTensor() && value.toTensor().defined()) {
      visit(index++, &value.toTensor());
    } else {
      visit(index++, static_cast<const at::Tensor*>(nullptr));
    }
  }
}

// A tensor over memory that someone else owns.
at::Tensor borrow(void* data, base::DType dtype, at::IntArrayRef sizes, at::IntArrayRef strides);

}  // namespace dc::runtime::kernel::aten
