// An instruction that finds the largest or smallest elements and their numbers, along one dim or of
// all, while its kernel is being prepared, as CPUs and GPUs read it.
#pragma once

#include <optional>
#include <vector>

#include "runtime/kernel/native/call.h"
#include "runtime/kernel/native/iteration.h"

namespace dc::runtime::kernel::native {

struct ExtremeCall {
  BoundTensor self;                   // with elements
  std::optional<BoundTensor> values;  // of self's type, if they are wanted
  BoundTensor indices;                // i64
  Iteration kept;                     // over self, values (steps of 0 without them), indices
  // Of self, in the order of dims, by which its elements are numbered.
  std::vector<int64_t> folded_sizes, folded_strides;
};
// `has_values`: the results are values and indices, else indices alone. They have size 1 in the
// folded dims, or are without them.
ExtremeCall read_extreme(Call& call, bool has_values);

}  // namespace dc::runtime::kernel::native
