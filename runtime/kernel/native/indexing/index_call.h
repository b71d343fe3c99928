// Instructions of index.Tensor, index_put and index_add while their kernels are being prepared, as
// CPUs and GPUs read them.
#pragma once

#include <optional>
#include <vector>

#include "runtime/kernel/native/call.h"
#include "runtime/kernel/native/iteration.h"

namespace dc::runtime::kernel::native {

// Chooses positions of a dim.
struct DimIndices {
  BoundTensor tensor;          // i64 or i32; negative ones count from the end
  int64_t step = 0, size = 0;  // of the dim
};

// Positions of some dims of `chosen`, by index tensors that are broadcast to one shape; the other
// dims are whole. `other` has what is chosen in order, or is broadcast to it.
struct IndexCall {
  BoundTensor chosen, other;
  std::vector<DimIndices> indices;
  Iteration choices;  // over the indices: row-major, `other`, then each index tensor
  Iteration part;     // over the whole dims: `chosen`, `other`
  // Of index_put and index_add: what `chosen` is before it is written to.
  std::optional<BoundTensor> before;
  bool accumulates = false;
  double factor = 1;  // of what is added
};

IndexCall read_index(Call& call);
IndexCall read_index_put(Call& call);
IndexCall read_index_add(Call& call);

}  // namespace dc::runtime::kernel::native
