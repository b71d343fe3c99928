// Batch norm over tensors [batch, channels, ...] of any strides, and its gradients.
#include <algorithm>
#include <array>
#include <optional>

#include "runtime/kernel/cuda/block.h"
#include "runtime/kernel/cuda/hand_source.h"
#include "runtime/kernel/cuda/kernels/batch_norm_parameters.h"
#include "runtime/kernel/cuda/model_kernels.h"
#include "runtime/kernel/cuda/walks.h"

namespace dc::runtime::kernel::cuda {
namespace {

using base::DType;
using base::Status;
using native::Call;
using native::Made;

Numbers channel_numbers(Call& call, const BoundTensor& tensor, int64_t channels) {
  call.require(tensor.sizes.size() == 1 && tensor.sizes[0] == channels,
               "batch norm takes one number per channel");
  return call.ok() ? numbers_of(call, tensor, tensor.strides[0]) : Numbers{};
}
Numbers operand_numbers(Call& call, std::string_view name, int64_t channels) {
  const auto tensor = call.tensor_if(name);
  return tensor && call.ok() ? channel_numbers(call, *tensor, channels) : Numbers{};
}
// A result without elements is none: evaluation saves no statistics on a CPU.
Numbers result_numbers(Call& call, size_t index, int64_t channels) {
  if (!call.ok() || !call.has_result(index)) return {};
  const BoundTensor tensor = call.output(index);
  return tensor.numel() == 0 ? Numbers{} : channel_numbers(call, tensor, channels);
}

class BatchNormMaker {
 public:
  BatchNormMaker(Workshop& workshop, Call& call, int32_t stream)
      : workshop_(workshop), call_(call), stream_(stream) {}

  // `trains` unless the argument 'training' says it; `updates`: results 3 and 4 are the new running
  // statistics.
  Made forward(std::optional<bool> trains, bool updates) {
    const BoundTensor x = call_.tensor("input"), y = call_.output(0);
    norm_.trains = trains ? *trains : call_.integer("training") != 0;
    norm_.momentum = call_.number("momentum");
    norm_.eps = call_.number("eps");
    read(x, x, y);
    if (!call_.ok()) return call_.made(nullptr);
    norm_.bias = operand_numbers(call_, "bias", norm_.channels);
    read_running_statistics(!norm_.trains || updates);
    norm_.mean = result_numbers(call_, 1, norm_.channels);
    norm_.rstd = result_numbers(call_, 2, norm_.channels);
    if (updates) {
      norm_.new_mean = result_numbers(call_, 3, norm_.channels);
      norm_.new_var = result_numbers(call_, 4, norm_.channels);
    }
    DC_RETURN_IF_ERROR(take_parts());
    if (norm_.trains) {
      DC_RETURN_IF_ERROR(add("batch_norm_sums"));
      DC_RETURN_IF_ERROR(add("batch_norm_squares"));
    }
    DC_RETURN_IF_ERROR(add("batch_norm"));
    return workshop_.kernel(std::move(launches_));
  }

  // The arguments' names: of the saved statistics, and of whether it trains.
  Made backward(std::string_view mean, std::string_view rstd, std::string_view trains) {
    const BoundTensor x = call_.tensor("input"), g = call_.tensor("grad_out");
    const bool is_wanted = call_.has_result(0);
    norm_.trains = call_.integer(trains) != 0;
    norm_.eps = call_.number("eps");
    read(x, g, is_wanted ? call_.output(0) : x);
    if (!call_.ok()) return call_.made(nullptr);
    if (!is_wanted) norm_.y = nullptr;
    if (norm_.trains) {
      norm_.mean = operand_numbers(call_, mean, norm_.channels);
      norm_.rstd = operand_numbers(call_, rstd, norm_.channels);
      call_.require(call_.has_value(mean) && call_.has_value(rstd),
                    "there are no saved statistics");
    } else {
      read_running_statistics(true);
    }
    norm_.of_weight = result_numbers(call_, 1, norm_.channels);
    norm_.of_bias = result_numbers(call_, 2, norm_.channels);
    DC_RETURN_IF_ERROR(take_parts());
    DC_RETURN_IF_ERROR(add("batch_norm_gradient_sums"));
    DC_RETURN_IF_ERROR(add("batch_norm_gradients"));
    return workshop_.kernel(std::move(launches_));
  }

 private:
  void read(const BoundTensor& x, const BoundTensor& g, const BoundTensor& y) {
    call_.require(base::is_floating(x.dtype), "batch norm takes floating-point numbers");
    call_.require(g.dtype == x.dtype && y.dtype == x.dtype, "its tensors have several types");
    call_.require(x.sizes.size() >= 2 && x.numel() > 0, "batch norm takes elements in channels");
    call_.same_sizes(g, x);
    call_.same_sizes(y, x);
    if (!call_.ok()) return;
    dtype_ = x.dtype;
    norm_.x = x.data;
    norm_.g = g.data;
    norm_.y = y.data;
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
    norm_.weight = operand_numbers(call_, "weight", norm_.channels);
  }

  void read_running_statistics(bool are_needed) {
    norm_.running_mean = operand_numbers(call_, "running_mean", norm_.channels);
    norm_.running_var = operand_numbers(call_, "running_var", norm_.channels);
    call_.require(
        !are_needed || (norm_.running_mean.data != nullptr && norm_.running_var.data != nullptr),
        "there are no running statistics");
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
            source_for({dtype_}, "dc_" + function, "batch_norm.h", "BatchNorm", function),
            workshop_.blocks_for(norm_.channels * norm_.parts * kBlockThreads), norm_));
    launches_.push_back(std::move(launch));
    return {};
  }

  Workshop& workshop_;
  Call& call_;
  int32_t stream_;
  DType dtype_ = DType::F32;
  BatchNorm norm_{};
  std::vector<Launch> launches_;
};

Made evaluation_kernel(Workshop& workshop, Call& call, int32_t stream) {
  return BatchNormMaker(workshop, call, stream).forward(false, false);
}
Made without_statistics_kernel(Workshop& workshop, Call& call, int32_t stream) {
  return BatchNormMaker(workshop, call, stream).forward({}, false);
}
Made functional_kernel(Workshop& workshop, Call& call, int32_t stream) {
  return BatchNormMaker(workshop, call, stream).forward({}, true);
}
Made backward_kernel(Workshop& workshop, Call& call, int32_t stream) {
  return BatchNormMaker(workshop, call, stream).backward("save_mean", "save_var", "update");
}
Made native_backward_kernel(Workshop& workshop, Call& call, int32_t stream) {
  return BatchNormMaker(workshop, call, stream).backward("save_mean", "save_invstd", "train");
}

constexpr ModelKernelRow kBatchNormRows[] = {
    {"aten._batch_norm_no_update.default", evaluation_kernel},
    {"aten._native_batch_norm_legit.no_stats", without_statistics_kernel},
    {"aten._native_batch_norm_legit_functional.default", functional_kernel},
    {"aten._native_batch_norm_legit_no_training.default", evaluation_kernel},
    {"aten.batch_norm_backward.default", backward_kernel},
    {"aten.native_batch_norm_backward.default", native_backward_kernel},
};

}  // namespace

std::span<const ModelKernelRow> batch_norm_kernels() { return kBatchNormRows; }

}  // namespace dc::runtime::kernel::cuda
