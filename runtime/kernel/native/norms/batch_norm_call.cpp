#include "runtime/kernel/native/norms/batch_norm_call.h"

#include "runtime/kernel/native/operator_rows.h"

namespace dc::runtime::kernel::native {
namespace {

// Reads what has a number for each of so many channels.
class ChannelReader {
 public:
  ChannelReader(Call& call, int64_t channels) : call_(call), channels_(channels) {}

  std::optional<BoundTensor> operand(std::string_view name) {
    return checked(call_.tensor_if(name));
  }
  // A result without elements is none: evaluation saves no statistics on a CPU.
  std::optional<BoundTensor> result(size_t index) {
    if (!call_.ok() || !call_.has_result(index)) return std::nullopt;
    const BoundTensor tensor = call_.output(index);
    return tensor.numel() == 0 ? std::nullopt : checked(tensor);
  }

 private:
  std::optional<BoundTensor> checked(const std::optional<BoundTensor>& tensor) {
    if (!tensor || !call_.ok()) return std::nullopt;
    call_.require(tensor->sizes.size() == 1 && tensor->sizes[0] == channels_,
                  "batch norm takes one number per channel");
    return tensor;
  }

  Call& call_;
  int64_t channels_;
};

// x, and the tensors of its shape.
void read_elements(Call& call, BatchNormCall& of) {
  of.x = call.tensor("input");
  call.require(base::is_floating(of.x.dtype), "batch norm takes floating-point numbers");
  call.require(of.x.sizes.size() >= 2 && of.x.numel() > 0, "batch norm takes elements in channels");
  if (!of.is_gradient || call.has_result(0)) of.y = call.output(0);
  if (of.is_gradient) of.g = call.tensor("grad_out");
  for (const auto& tensor : {of.y, of.g})
    if (tensor) call.same_sizes(*tensor, of.x);
}

void read_results(ChannelReader channels, const BatchNormOperator& what, BatchNormCall& of) {
  of.bias = channels.operand("bias");
  of.mean = channels.result(1);
  of.rstd = channels.result(2);
  if (!what.updates) return;
  of.new_mean = channels.result(3);
  of.new_var = channels.result(4);
}

void read_gradients(Call& call, ChannelReader channels, const BatchNormOperator& what,
                    BatchNormCall& of) {
  of.weight_gradient = channels.result(1);
  of.bias_gradient = channels.result(2);
  if (!of.trains) return;
  of.mean = channels.operand("save_mean");
  of.rstd = channels.operand(what.rstd);
  call.require(of.mean && of.rstd, "there are no saved statistics");
}

}  // namespace

BatchNormCall read_batch_norm(Call& call) {
  const BatchNormOperator& what = operator_of(kBatchNormOperators, call.op());
  BatchNormCall of;
  of.is_gradient = !what.rstd.empty();
  of.trains = !what.trains.empty() && call.integer(what.trains) != 0;
  of.eps = call.number("eps");
  if (!of.is_gradient) of.momentum = call.number("momentum");
  read_elements(call, of);
  if (!call.ok()) return of;
  ChannelReader channels(call, of.x.sizes[1]);
  of.weight = channels.operand("weight");
  of.running_mean = channels.operand("running_mean");
  of.running_var = channels.operand("running_var");
  call.require((of.trains && !what.updates) || (of.running_mean && of.running_var),
               "there are no running statistics");
  if (of.is_gradient) {
    read_gradients(call, channels, what, of);
  } else {
    read_results(channels, what, of);
  }
  return of;
}

}  // namespace dc::runtime::kernel::native
