// Times that no order of a draft's kernels and buckets beats: the work is fixed, as in
// src/sim/bounds.h, whose words these are.
#pragma once

#include "src/fusion/draft.h"
#include "src/fusion/timeline.h"

namespace dc::fusion {

// Timeline::full_overlap() and what must come before the first and after the last piece of work of
// the device and of the channel: a bucket waits for all kernels that its gradients need, and a
// kernel is followed by all buckets that need it. Jackson's preemptive schedule (src/sim/
// one_machine.h). Quadratic in the number of kernels, divided by the bits of a word.
base::Nanos with_ends(const Draft& draft, const LinearTime& collective);

}  // namespace dc::fusion
