// Softmax, layer norm, RMS norm and nll_loss of rows, and their gradients.
#include <algorithm>
#include <limits>

#include "runtime/kernel/cuda/block.h"
#include "runtime/kernel/cuda/copy_kernels.h"
#include "runtime/kernel/cuda/hand_source.h"
#include "runtime/kernel/cuda/kernels/row_parameters.h"
#include "runtime/kernel/cuda/model_kernels.h"
#include "runtime/kernel/cuda/walks.h"
#include "runtime/kernel/native/copies/regions.h"
#include "runtime/kernel/native/norms/class_rows.h"

namespace dc::runtime::kernel::cuda {
namespace {

using base::DType;
using base::Result;
using native::Call;
using native::Made;

unsigned blocks_for_rows(const Workshop& workshop, int64_t rows) {
  return workshop.blocks_for(rows * kBlockThreads);
}

Made softmax_kernel(Workshop& workshop, Call& call, SoftmaxKind kind) {
  const BoundTensor x = call.tensor("self"), y = call.output(0);
  const size_t dim = call.dim("dim", x);
  call.require(base::is_floating(x.dtype) && base::is_floating(y.dtype),
               "it must be floating-point");
  const native::Rows rows(call, x, dim, std::min(dim + 1, x.sizes.size()), {&x, &y});
  const Softmax parameters{x.data, y.data, row_walk_of<2>(call, rows), kind};
  if (!call.ok()) return call.made(nullptr);
  return workshop.kernel(
      source_for({x.dtype, y.dtype}, "dc_softmax", "softmax.h", "Softmax", "softmax"),
      blocks_for_rows(workshop, rows.count()), parameters);
}
Made plain_softmax_kernel(Workshop& workshop, Call& call, int32_t) {
  return softmax_kernel(workshop, call, SoftmaxKind::Plain);
}
Made safe_softmax_kernel(Workshop& workshop, Call& call, int32_t) {
  return softmax_kernel(workshop, call, SoftmaxKind::Safe);
}
Made log_softmax_kernel(Workshop& workshop, Call& call, int32_t) {
  return softmax_kernel(workshop, call, SoftmaxKind::Logarithm);
}

Made softmax_backward_kernel(Workshop& workshop, Call& call, int32_t) {
  const BoundTensor g = call.tensor("grad_output"), y = call.tensor("output"), to = call.output(0);
  const size_t dim = call.dim("dim", y);
  call.require(base::is_floating(y.dtype) && base::is_floating(g.dtype) && to.dtype == g.dtype,
               "it must be floating-point, the gradients of one type");
  const native::Rows rows(call, y, dim, std::min(dim + 1, y.sizes.size()), {&g, &y, &to});
  const SoftmaxBackward parameters{g.data, y.data, to.data, row_walk_of<3>(call, rows),
                                   call.op() == "aten._log_softmax_backward_data.default"};
  if (!call.ok()) return call.made(nullptr);
  return workshop.kernel(source_for({g.dtype, y.dtype}, "dc_softmax_gradients", "softmax.h",
                                    "SoftmaxBackward", "softmax_gradients"),
                         blocks_for_rows(workshop, rows.count()), parameters);
}

size_t first_dim_of_rows(Call& call, const BoundTensor& x) {
  const size_t dims = call.integers("normalized_shape").size();
  call.require(dims <= x.sizes.size() && base::is_floating(x.dtype),
               "'normalized_shape' does not fit the operand");
  return call.ok() ? x.sizes.size() - dims : 0;
}

Made norm_kernel(Workshop& workshop, Call& call, bool is_centered) {
  const BoundTensor x = call.tensor("input"), y = call.output(0);
  const size_t first = first_dim_of_rows(call, x), rstd_at = is_centered ? 2 : 1;
  const bool keeps = call.has_result(rstd_at), keeps_mean = is_centered && call.has_result(1);
  const BoundTensor rstd = keeps        ? call.output(rstd_at)
                           : keeps_mean ? call.output(1)
                                        : BoundTensor();
  const BoundTensor mean = keeps_mean ? call.output(1) : rstd;
  call.require(x.dtype == y.dtype, "the result has another element type");
  const native::Rows rows =
      keeps || keeps_mean
          ? native::Rows(call, x, first, x.sizes.size(), {&x, &y, &y}, {&rstd, &mean})
          : native::Rows(call, x, first, x.sizes.size(), {&x, &y, &y});
  if (!call.ok()) return call.made(nullptr);
  Norm parameters{};
  parameters.x = x.data;
  parameters.y = y.data;
  parameters.rows = row_walk_of<5>(call, rows);
  if (keeps) parameters.rstd = numbers_of(call, rstd);
  if (keeps_mean) parameters.mean = numbers_of(call, mean);
  parameters.weight = row_numbers_of(call, call.tensor_if("weight"), rows.length());
  parameters.bias = row_numbers_of(call, call.tensor_if("bias"), rows.length());
  // Without eps: the resolution of the type that is computed in.
  const double least = x.dtype == DType::F64
                           ? std::numeric_limits<double>::epsilon()
                           : static_cast<double>(std::numeric_limits<float>::epsilon());
  parameters.eps = call.number("eps", least);
  parameters.is_centered = is_centered;
  if (!call.ok()) return call.made(nullptr);
  return workshop.kernel(source_for({x.dtype}, "dc_norm_rows", "norms.h", "Norm", "norm_rows"),
                         blocks_for_rows(workshop, rows.count()), parameters);
}
Made layer_norm_kernel(Workshop& workshop, Call& call, int32_t) {
  return norm_kernel(workshop, call, true);
}
Made rms_norm_kernel(Workshop& workshop, Call& call, int32_t) {
  return norm_kernel(workshop, call, false);
}

// The gradients of weight and bias that are wanted.
Result<std::vector<Launch>> column_launches(Workshop& workshop, const Norm& norm,
                                            const Numbers& of_weight, const Numbers& of_bias,
                                            DType dtype, int32_t stream) {
  const int64_t length = norm.rows.length;
  NormColumns parameters{norm, nullptr, (norm.rows.rows.count + kRowsInPart - 1) / kRowsInPart,
                         of_weight, of_bias};
  const int64_t bytes = 2 * parameters.count * length * static_cast<int64_t>(sizeof(double));
  DC_ASSIGN_OR_RETURN(std::byte* const parts, workshop.scratch(stream, bytes));
  parameters.parts = reinterpret_cast<double*>(parts);
  std::vector<Launch> launches(2);
  DC_ASSIGN_OR_RETURN(
      launches[0],
      workshop.launch(source_for({dtype}, "dc_norm_parts", "norms.h", "NormColumns", "norm_parts"),
                      workshop.blocks_for(parameters.count * length), parameters));
  DC_ASSIGN_OR_RETURN(launches[1], workshop.launch(source_of("dc_norm_columns", "norms.h",
                                                             "NormColumns", "norm_columns"),
                                                   workshop.blocks_for(length), parameters));
  return launches;
}

Made norm_backward_kernel(Workshop& workshop, Call& call, int32_t stream) {
  const bool is_centered = call.op() == "aten.native_layer_norm_backward.default";
  const BoundTensor x = call.tensor("input"), g = call.tensor("grad_out"),
                    rstd = call.tensor("rstd"), mean = is_centered ? call.tensor("mean") : rstd;
  const bool wants_x = call.has_result(0);
  const BoundTensor to = wants_x ? call.output(0) : x;
  const size_t first = first_dim_of_rows(call, x);
  call.require(g.dtype == x.dtype && to.dtype == x.dtype, "its rows have several element types");
  const native::Rows rows(call, x, first, x.sizes.size(), {&x, &to, &g}, {&rstd, &mean});
  if (!call.ok()) return call.made(nullptr);
  Norm parameters{};
  parameters.x = x.data;
  parameters.g = g.data;
  parameters.y = wants_x ? to.data : nullptr;
  parameters.rows = row_walk_of<5>(call, rows);
  parameters.rstd = numbers_of(call, rstd);
  if (is_centered) parameters.mean = numbers_of(call, mean);
  parameters.weight = row_numbers_of(call, call.tensor_if("weight"), rows.length());
  parameters.is_centered = is_centered;
  const auto gradient = [&](size_t index) {
    return call.has_result(index) ? row_numbers_of(call, call.output(index), rows.length())
                                  : Numbers{};
  };
  const Numbers of_weight = gradient(1), of_bias = is_centered ? gradient(2) : Numbers{};
  if (!call.ok()) return call.made(nullptr);
  std::vector<Launch> launches;
  if (of_weight.data != nullptr || of_bias.data != nullptr) {
    DC_ASSIGN_OR_RETURN(launches,
                        column_launches(workshop, parameters, of_weight, of_bias, x.dtype, stream));
  }
  if (wants_x) {
    DC_ASSIGN_OR_RETURN(
        Launch launch, workshop.launch(source_for({x.dtype}, "dc_norm_gradients", "norms.h", "Norm",
                                                  "norm_gradients"),
                                       blocks_for_rows(workshop, rows.count()), parameters));
    launches.push_back(std::move(launch));
  }
  return workshop.kernel(std::move(launches));
}

constexpr int64_t kNoReduction = 0;

NllLoss read_loss(Call& call, DType* dtype) {
  NllLoss loss{};
  const BoundTensor self = call.tensor("self"), target = call.tensor("target");
  const auto weight = call.tensor_if("weight");
  const int64_t reduction = call.integer("reduction", native::kMeanOfRows);
  call.require(self.sizes.size() == 2 && target.sizes.size() == 1 &&
                   target.sizes[0] == self.sizes[0] && target.dtype == DType::I64,
               "only rows of classes with one class number each have a kernel");
  call.require(base::is_floating(self.dtype) && self.dtype != DType::F64,
               "it does not take this element type");
  call.require(reduction >= kNoReduction && reduction <= native::kSumOfRows,
               "'reduction' is none that it knows");
  if (!call.ok()) return loss;
  *dtype = self.dtype;
  loss.values = self.data;
  loss.targets = static_cast<const int64_t*>(target.data);
  loss.rows = self.sizes[0];
  loss.classes = self.sizes[1];
  loss.row_stride = self.strides[0];
  loss.class_stride = self.strides[1];
  loss.target_stride = target.strides[0];
  loss.ignored = call.integer("ignore_index", -100);
  loss.is_mean = reduction == native::kMeanOfRows;
  loss.is_reduced = reduction != kNoReduction;
  loss.weight = row_numbers_of(call, weight, loss.classes);
  return loss;
}

// What the reduction leaves: a number per row, or one.
Numbers reduced_numbers(Call& call, const NllLoss& loss, const BoundTensor& tensor) {
  call.require(loss.is_reduced ? tensor.numel() == 1
                               : tensor.sizes.size() == 1 && tensor.sizes[0] == loss.rows,
               "the loss or its gradient has another shape");
  if (!call.ok()) return {};
  return numbers_of(call, tensor, tensor.sizes.empty() ? 0 : tensor.strides[0]);
}

Made nll_loss_kernel(Workshop& workshop, Call& call, int32_t) {
  DType dtype{};
  NllLoss loss = read_loss(call, &dtype);
  loss.loss = reduced_numbers(call, loss, call.output(0));
  if (call.has_result(1)) {
    const BoundTensor total = call.output(1);
    call.require(total.numel() == 1, "the sum of weights must be one number");
    loss.total = numbers_of(call, total);
  }
  if (!call.ok()) return call.made(nullptr);
  return workshop.kernel(source_for({dtype}, "dc_nll_loss", "nll_loss.h", "NllLoss", "nll_loss"), 1,
                         loss);
}

Made nll_loss_backward_kernel(Workshop& workshop, Call& call, int32_t) {
  DType dtype{};
  NllLossBackward parameters{};
  parameters.of = read_loss(call, &dtype);
  const BoundTensor g = call.tensor("grad_output"), total = call.tensor("total_weight"),
                    to = call.output(0);
  call.same_sizes(call.tensor("self"), to);
  parameters.g = reduced_numbers(call, parameters.of, g);
  call.require(total.numel() == 1 && to.dtype == dtype,
               "the sum of weights must be one number, the gradient of the values' type");
  native::CopyRegions zero;
  zero.fill(call, native::Region(to), 0.0);
  if (!call.ok()) return call.made(nullptr);
  parameters.total = numbers_of(call, total);
  parameters.to = to.data;
  parameters.to_row = to.strides[0];
  parameters.to_class = to.strides[1];
  DC_ASSIGN_OR_RETURN(std::vector<Launch> launches, launches_of(workshop, call, zero));
  DC_ASSIGN_OR_RETURN(Launch launch,
                      workshop.launch(source_for({dtype}, "dc_nll_loss_gradients", "nll_loss.h",
                                                 "NllLossBackward", "nll_loss_gradients"),
                                      workshop.blocks_for(parameters.of.rows), parameters));
  launches.push_back(std::move(launch));
  return workshop.kernel(std::move(launches));
}

constexpr ModelKernelRow kNormRows[] = {
    {"aten._fused_rms_norm.default", rms_norm_kernel},
    {"aten._fused_rms_norm_backward.default", norm_backward_kernel},
    {"aten._log_softmax.default", log_softmax_kernel},
    {"aten._log_softmax_backward_data.default", softmax_backward_kernel},
    {"aten._safe_softmax.default", safe_softmax_kernel},
    {"aten._softmax.default", plain_softmax_kernel},
    {"aten._softmax_backward_data.default", softmax_backward_kernel},
    {"aten.native_layer_norm.default", layer_norm_kernel},
    {"aten.native_layer_norm_backward.default", norm_backward_kernel},
    {"aten.nll_loss_backward.default", nll_loss_backward_kernel},
    {"aten.nll_loss_forward.default", nll_loss_kernel},
};

}  // namespace

std::span<const ModelKernelRow> norm_kernels() { return kNormRows; }

}  // namespace dc::runtime::kernel::cuda
