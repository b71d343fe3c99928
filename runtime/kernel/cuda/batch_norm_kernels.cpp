// Batch norm over tensors [batch, channels, ...] of any strides, and its gradients.
#include <algorithm>
#include <array>
#include <optional>

#include "runtime/kernel/cuda/block.h"
#include "runtime/kernel/cuda/hand_source.h"
#include "runtime/kernel/cuda/kernels/batch_norm_parameters.h"
#include "runtime/kernel/cuda/model_kernels.h"
#include "runtime/kernel/cuda/walks.h"
#include "runtime/kernel/native/norms/batch_norm_call.h"
#include "runtime/kernel/native/operator_rows.h"

namespace dc::runtime::kernel::cuda {
namespace {

using base::Status;
using native::Call;
using native::Made;

class BatchNormMaker {
 public:
  BatchNormMaker(Workshop& workshop, Call& call, int32_t stream)
      : workshop_(workshop), call_(call), stream_(stream), of_(native::read_batch_norm(call)) {}

  Made make() {
    read();
    DC_RETURN_IF_ERROR(take_parts());
    if (of_.is_gradient) {
      DC_RETURN_IF_ERROR(add("batch_norm_gradient_sums"));
      DC_RETURN_IF_ERROR(add("batch_norm_gradients"));
      return workshop_.kernel(std::move(launches_));
    }
    if (norm_.trains) {
      DC_RETURN_IF_ERROR(add("batch_norm_sums"));
      DC_RETURN_IF_ERROR(add("batch_norm_squares"));
    }
    DC_RETURN_IF_ERROR(add("batch_norm"));
    return workshop_.kernel(std::move(launches_));
  }

 private:
  void read() {
    const BoundTensor &x = of_.x, &y = of_.y ? *of_.y : x, &g = of_.g ? *of_.g : x;
    call_.require(g.dtype == x.dtype && y.dtype == x.dtype, "its tensors have several types");
    if (!call_.ok()) return;
    norm_.trains = of_.trains;
    norm_.momentum = of_.momentum;
    norm_.eps = of_.eps;
    norm_.x = x.data;
    norm_.g = g.data;
    norm_.y = of_.y ? y.data : nullptr;
    norm_.channels = x.sizes[1];
    std::vector<int64_t> sizes(x.sizes.begin(), x.sizes.end());
    sizes[1] = 1;
    const auto strides = [](const BoundTensor& tensor) {
      return std::vector<int64_t>(tensor.strides.begin(), tensor.strides.end());
    };
    norm_.elements =
        walk_of<3>(call_, native::Iteration(sizes, std::array{strides(x), strides(g), strides(y)}));
    size_t number = 0;
    for (const BoundTensor& tensor : {x, g, y}) norm_.between[number++] = tensor.strides[1];
    norm_.weight = numbers(of_.weight);
    norm_.bias = numbers(of_.bias);
    norm_.running_mean = numbers(of_.running_mean);
    norm_.running_var = numbers(of_.running_var);
    norm_.mean = numbers(of_.mean);
    norm_.rstd = numbers(of_.rstd);
    norm_.new_mean = numbers(of_.new_mean);
    norm_.new_var = numbers(of_.new_var);
    norm_.of_weight = numbers(of_.weight_gradient);
    norm_.of_bias = numbers(of_.bias_gradient);
  }

  Numbers numbers(const std::optional<BoundTensor>& tensor) {
    return tensor ? numbers_of(call_, *tensor, tensor->strides[0]) : Numbers{};
  }

  Status take_parts() {
    if (!call_.ok()) return call_.made(nullptr).status();
    const int64_t count = norm_.elements.count;
    norm_.length = std::max(kNormPartElements, (count + kMostNormParts - 1) / kMostNormParts);
    norm_.parts = (count + norm_.length - 1) / norm_.length;
    const int64_t bytes = 2 * norm_.channels * norm_.parts * static_cast<int64_t>(sizeof(double));
    DC_ASSIGN_OR_RETURN(std::byte* const sums, workshop_.scratch(stream_, bytes));
    norm_.sums = reinterpret_cast<double*>(sums);
    return {};
  }

  Status add(const std::string& function) {
    DC_ASSIGN_OR_RETURN(
        Launch launch,
        workshop_.launch(
            source_for({of_.x.dtype}, "dc_" + function, "batch_norm.h", "BatchNorm", function),
            workshop_.blocks_for(norm_.channels * norm_.parts * kBlockThreads), norm_));
    launches_.push_back(std::move(launch));
    return {};
  }

  Workshop& workshop_;
  Call& call_;
  int32_t stream_;
  native::BatchNormCall of_;
  BatchNorm norm_{};
  std::vector<Launch> launches_;
};

Made batch_norm_kernel(Workshop& workshop, Call& call, int32_t stream) {
  return BatchNormMaker(workshop, call, stream).make();
}

constexpr auto kBatchNormRows =
    native::operator_rows<ModelKernelRow>(native::kBatchNormOperators, batch_norm_kernel);

}  // namespace

std::span<const ModelKernelRow> batch_norm_kernels() { return kBatchNormRows; }

}  // namespace dc::runtime::kernel::cuda
