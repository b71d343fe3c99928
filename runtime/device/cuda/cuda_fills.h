// Fills in what is recorded.
#pragma once

#include "runtime/device/cuda/driver.h"

namespace dc::runtime::device {

// Puts `kernel`, which has FillWords as its parameter, in place of each fill of whole words in a
// graph: the time in which a GPU takes a graph of kernels hardly depends on how many there are, but
// each fill costs the host 1.7 us more, and the GPU 1.9 us more than a kernel (H200, driver 580).
// Fills stay what they are where the driver lacks the calls for it. The first result of a call that
// left the graph incomplete.
int put_kernels_for_fills(const cuda::Driver& driver, cuda::GraphHandle graph,
                          cuda::Function kernel);

}  // namespace dc::runtime::device
