#include "runtime/kernel/cuda/block.h"
#include "runtime/kernel/cuda/hand_source.h"
#include "runtime/kernel/cuda/kernels/parameters.h"
#include "runtime/kernel/cuda/model_kernels.h"
#include "runtime/kernel/native/norms/loss_calls.h"

namespace dc::runtime::kernel::cuda {
namespace {

using native::Call;
using native::Made;

CrossEntropy parameters_of(const native::CrossEntropyCall& of) {
  CrossEntropy parameters{};
  parameters.logits = of.logits.data;
  parameters.targets = static_cast<const int64_t*>(of.target.data);
  parameters.rows = of.rows;
  parameters.classes = of.classes;
  parameters.ignored = of.ignored;
  parameters.is_mean = of.is_mean;
  parameters.total = static_cast<float*>(of.total.data);
  parameters.largest = static_cast<float*>(of.largest.data);
  parameters.log_of_sum = static_cast<float*>(of.log_of_sum.data);
  return parameters;
}

KernelSource cross_entropy_source(const native::CrossEntropyCall& of, const std::string& function) {
  return source_for({of.logits.dtype}, "dc_" + function, "cross_entropy.h", "CrossEntropy",
                    function);
}

Made cross_entropy_kernel(Workshop& workshop, Call& call, int32_t) {
  const native::CrossEntropyCall of = native::read_cross_entropy(call);
  if (!call.ok()) return call.made(nullptr);
  CrossEntropy parameters = parameters_of(of);
  parameters.loss = static_cast<float*>(of.loss.data);
  std::vector<Launch> launches(2);
  DC_ASSIGN_OR_RETURN(launches[0],
                      workshop.launch(cross_entropy_source(of, "cross_entropy_rows"),
                                      workshop.blocks_for(of.rows * kBlockThreads), parameters));
  DC_ASSIGN_OR_RETURN(
      launches[1], workshop.launch(cross_entropy_source(of, "cross_entropy_loss"), 1, parameters));
  return workshop.kernel(std::move(launches));
}

Made cross_entropy_backward_kernel(Workshop& workshop, Call& call, int32_t) {
  const native::CrossEntropyCall of = native::read_cross_entropy_gradient(call);
  if (!call.ok()) return call.made(nullptr);
  CrossEntropy parameters = parameters_of(of);
  parameters.loss_gradient = static_cast<const float*>(of.loss.data);
  return workshop.kernel(cross_entropy_source(of, "cross_entropy_gradients"),
                         workshop.blocks_for(of.rows * of.classes), parameters);
}

constexpr ModelKernelRow kCrossEntropyRows[] = {
    {"dc.cross_entropy", cross_entropy_kernel},
    {"dc.cross_entropy_backward", cross_entropy_backward_kernel},
};

}  // namespace

std::span<const ModelKernelRow> cross_entropy_kernels() { return kCrossEntropyRows; }

}  // namespace dc::runtime::kernel::cuda
