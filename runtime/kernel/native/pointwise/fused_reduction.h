// FusedReduction: a fused kernel that folds values, and reads none of the results.
//
// The values are a matrix (base::ExpressionShape), and its tensors are walked in the order in which
// it would lie in memory: rows by rows, or columns in blocks of kBlock, each along all rows. The
// lanes of values to fold go to buffers of kBlock lanes. A buffer that is full is folded, so these
// values are never written to the memory of the plan.
#pragma once

#include "runtime/kernel/native/pointwise/fused_fold.h"
#include "runtime/kernel/native/pointwise/fused_kernel.h"

namespace dc::runtime::kernel::native {

class FusedReduction final : public FusedKernel {
 public:
  // A value whose lanes go to a buffer.
  struct Folded {
    size_t slot = 0;
    int64_t lane_bytes = 0;
  };
  // A reduction of one of them. The result's strides are those along rows or columns.
  struct Fold {
    std::unique_ptr<FusedFold> fold;
    size_t folded = 0;
    Side result;
    int64_t stride = 0;  // from a result to the next, elements
    StoreLanes store = nullptr;
  };

  Iteration across, along;  // dims of rows, dims of columns; over the tensors of `iteration`
  bool by_rows = true;      // a result is made of a row, otherwise of a column
  std::vector<Folded> folded;
  std::vector<Fold> folds;

  void run_from(device::Stream& stream, const Offsets& from) const override;

 private:
  struct Walk;
  struct Part;
  void walk_rows(Walk& walk) const;
  void walk_long_row(Walk& walk, const Offsets& at, int64_t row, int64_t result) const;
  void walk_columns(Walk& walk) const;
  void evaluate(Walk& walk, const Part& part) const;
  void store(const Walk& walk, const Offsets& at, int64_t first, int64_t n) const;
};

}  // namespace dc::runtime::kernel::native
