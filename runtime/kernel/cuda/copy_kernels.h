// Kernels that move elements as they are: copies between regions, which the CPU's kernels say
// (runtime/kernel/native/copies), triangles of matrices, counts.
#pragma once

#include <span>

#include "runtime/kernel/cuda/step_kernels.h"
#include "runtime/kernel/cuda/walks.h"

namespace dc::runtime::kernel::native {
class CopyRegions;
}

namespace dc::runtime::kernel::cuda {

// Null if there is none of an operator.
StepKernel find_copy_kernel(std::string_view op);

// What fills and copies the regions.
base::Result<std::vector<Launch>> launches_of(Workshop& workshop, native::Call& call,
                                              const native::CopyRegions& regions);

// The widest words, of at most 16 bytes, that the rows of all these tensors of an iteration consist
// of; single elements where there is no such word.
int64_t bytes_of_words(const native::Iteration& iteration, int64_t element,
                       std::span<const void* const> tensors);
// The same walk in words of so many elements.
template <int kTensors>
Walk<kTensors> in_words(Walk<kTensors> walk, int64_t elements) {
  if (elements == 1) return walk;
  walk.count /= elements;
  const int64_t last = walk.dims - 1;
  walk.sizes[last] /= elements;
  for (int64_t d = 0; d < last; ++d)
    for (int64_t& stride : walk.strides[d]) stride /= elements;
  return walk;
}
// What words of so many bytes are called in the text of kernels.
const char* word_type(int64_t bytes);

}  // namespace dc::runtime::kernel::cuda
