// Whether this rank's part of the state may be saved.
#pragma once

#include <string>

#include "runtime/memory/disk_space.h"
#include "runtime/plan/plan.h"
#include "runtime/train/checkpoint.h"

namespace dc::runtime {

// The name of a parameter that holds a number that is not finite, as the file would have it (cast
// to its own type), or of a buffer that holds NaN; empty if there is none. Infinities in buffers
// are legal: masks have them. Looks at what this rank would write.
base::Result<std::string> find_non_finite(const plan::Plan& plan, const TensorBinder& bind,
                                          int rank, DiskSpace* disk);

}  // namespace dc::runtime
