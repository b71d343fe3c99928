// Every distinct kernel that this process has met, once. Kernels are few: a model of 200 000 nodes
// has some hundreds, so the table only grows. Threads may use it.
#pragma once

#include "src/base/kernel_signature.h"
#include "src/base/units.h"

namespace dc::base {

using KernelId = Id<struct KernelTag>;  // of this process only

KernelId intern(const KernelSignature& kernel);
const KernelSignature& signature_of(KernelId kernel);

}  // namespace dc::base
