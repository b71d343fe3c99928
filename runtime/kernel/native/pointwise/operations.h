// The native kernels of an expression's operations: what each computes, in which lanes and with
// which numbers. They are made for element types alone, and are never launched.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "runtime/kernel/native/pointwise/pointwise.h"
#include "src/base/expression.h"

namespace dc::runtime::kernel::native {

// Of the kernels' operands, tensors have no data, and their element types are those of the
// expression's.
class Operations {
 public:
  // Reductions have none here (fused_fold.h), nor has index_in.range. `operands`: of the
  // expression. `has_dims`: whether its values have. Unsupported (81) for an operation that no
  // element-wise kernel does.
  static base::Result<Operations> of(const base::Expression& expression,
                                     std::span<const BoundTensor> operands, bool has_dims);

  size_t size() const { return kernels_.size(); }
  const Pointwise& operator[](size_t index) const { return *kernels_[index]; }

 private:
  std::unique_ptr<plan::Plan> described_;  // the tensors that the kernels are made for
  std::vector<std::unique_ptr<Pointwise>> kernels_;
};

}  // namespace dc::runtime::kernel::native
