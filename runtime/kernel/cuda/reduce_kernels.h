// Folds over dims, for operators that are made of them.
#pragma once

#include <vector>

#include "runtime/kernel/cuda/workshop.h"
#include "runtime/kernel/native/call.h"

namespace dc::runtime::kernel::cuda {

// The sums of `from` over these dims; `to` has the others. Refuses what does not fit.
base::Result<Launch> sum_launch(Workshop& workshop, native::Call& call, const BoundTensor& from,
                                const BoundTensor& to, const std::vector<int64_t>& dims);

}  // namespace dc::runtime::kernel::cuda
