// FusedRows: a fused kernel that reads row values (base::Expression), made of kernels that do not.
//
// Some rows at a time, few enough for their elements to stay in a cache, go through the phases of
// the expression (base/expression_phases.h). Each phase is a fused kernel over these rows' elements
// that takes row values for operands; what it folds, and row values made of that, lie in results or
// in small memory of this kernel. So a phase that needs what another one computed computes it again
// from elements that the cache has.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "runtime/kernel/native/pointwise/expression_tensors.h"
#include "runtime/kernel/native/pointwise/fused_kernel.h"

namespace dc::runtime::kernel::native {

class FusedRows final : public Kernel {
 public:
  // Of the tensors of a part, which of the whole kernel's each is. Others are row values.
  static constexpr size_t kNone = SIZE_MAX;
  struct Part {
    std::unique_ptr<FusedKernel> kernel;
    std::vector<size_t> tensors;
  };
  // In the order in which they run, for so many rows.
  struct Parts {
    int64_t rows = 0;
    std::vector<Part> parts;
  };

  Iteration across;   // dims of rows, over the tensors of the whole kernel
  Parts whole, rest;  // rows along the innermost dim, and what they leave; `rest` may have none
  std::deque<std::vector<double>> row_values;

  base::Status launch(device::Stream& stream) override;
};

// Of an expression without row values that are read. The call refuses tensors that do not fit.
base::Result<std::unique_ptr<FusedKernel>> fused_kernel(Call& call,
                                                        const base::Expression& expression,
                                                        ExpressionTensors tensors);
// Of one that reads_rows().
base::Result<std::unique_ptr<FusedRows>> fused_rows(Call& call, const base::Expression& expression,
                                                    ExpressionTensors tensors);

}  // namespace dc::runtime::kernel::native
