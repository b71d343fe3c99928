// What dc.linear_cross_entropy costs: three products and a loss in one kernel.
#pragma once

#include <optional>

#include "src/base/kernel_signature.h"
#include "src/base/logit_chunks.h"

namespace dc::cost {

// The sizes of the kernel's output layer; nothing for other kernels, and for what is none because
// the plan was not made by this compiler.
std::optional<base::OutputLayer> output_layer_of(const base::KernelSignature& kernel);

struct OutputLayerWork {
  int64_t flops = 0;    // of the three products
  int64_t bytes = 0;    // of logits that are read and made gradients, by the loss
  int64_t kernels = 0;  // that a device would launch: three products and a loss for each part
};
OutputLayerWork work_of(const base::OutputLayer& layer);

}  // namespace dc::cost
