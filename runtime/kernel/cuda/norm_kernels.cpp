// Softmax, layer norm, RMS norm and nll_loss of rows, and their gradients.
#include <algorithm>

#include "runtime/kernel/cuda/block.h"
#include "runtime/kernel/cuda/copy_kernels.h"
#include "runtime/kernel/cuda/hand_source.h"
#include "runtime/kernel/cuda/kernels/row_parameters.h"
#include "runtime/kernel/cuda/model_kernels.h"
#include "runtime/kernel/cuda/walks.h"
#include "runtime/kernel/native/copies/regions.h"
#include "runtime/kernel/native/norms/loss_calls.h"
#include "runtime/kernel/native/norms/norm_call.h"

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
  call.require(
      base::is_floating(y.dtype) && base::is_floating(g.dtype) && base::is_floating(to.dtype),
      "it must be floating-point");
  const native::Rows rows(call, y, dim, std::min(dim + 1, y.sizes.size()), {&g, &y, &to});
  const SoftmaxBackward parameters{g.data, y.data, to.data, row_walk_of<3>(call, rows),
                                   call.op() == "aten._log_softmax_backward_data.default"};
  if (!call.ok()) return call.made(nullptr);
  return workshop.kernel(source_for({g.dtype, y.dtype, to.dtype}, "dc_softmax_gradients",
                                    "softmax.h", "SoftmaxBackward", "softmax_gradients"),
                         blocks_for_rows(workshop, rows.count()), parameters);
}

Norm parameters_of(Call& call, const native::NormCall& of) {
  Norm norm{};
  norm.x = of.x.data;
  if (of.y) norm.y = of.y->data;
  if (of.g) norm.g = of.g->data;
  norm.rows = row_walk_of<5>(call, of.rows);
  if (of.rstd) norm.rstd = numbers_of(call, *of.rstd);
  if (of.mean) norm.mean = numbers_of(call, *of.mean);
  norm.weight = row_numbers_of(call, of.weight, of.rows.length());
  norm.bias = row_numbers_of(call, of.bias, of.rows.length());
  norm.eps = of.eps;
  norm.is_centered = of.is_centered;
  return norm;
}

Made norm_kernel(Workshop& workshop, Call& call, int32_t) {
  const native::NormCall of = native::read_norm(call);
  call.require(of.y && of.x.dtype == of.y->dtype, "the result has another element type");
  const Norm parameters = parameters_of(call, of);
  if (!call.ok()) return call.made(nullptr);
  return workshop.kernel(source_for({of.x.dtype}, "dc_norm_rows", "norms.h", "Norm", "norm_rows"),
                         blocks_for_rows(workshop, of.rows.count()), parameters);
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
  const native::NormCall of = native::read_norm_gradients(call);
  const DType dtype = of.x.dtype;
  call.require(of.g && of.g->dtype == dtype && (!of.y || of.y->dtype == dtype),
               "its rows have several element types");
  const Norm parameters = parameters_of(call, of);
  const Numbers of_weight = row_numbers_of(call, of.weight_gradient, of.rows.length()),
                of_bias = row_numbers_of(call, of.bias_gradient, of.rows.length());
  if (!call.ok()) return call.made(nullptr);
  std::vector<Launch> launches;
  if (of_weight.data != nullptr || of_bias.data != nullptr) {
    DC_ASSIGN_OR_RETURN(launches,
                        column_launches(workshop, parameters, of_weight, of_bias, dtype, stream));
  }
  if (of.y) {
    DC_ASSIGN_OR_RETURN(Launch launch,
                        workshop.launch(source_for({dtype}, "dc_norm_gradients", "norms.h", "Norm",
                                                   "norm_gradients"),
                                        blocks_for_rows(workshop, of.rows.count()), parameters));
    launches.push_back(std::move(launch));
  }
  return workshop.kernel(std::move(launches));
}

NllLoss parameters_of(Call& call, const native::NllLossCall& of) {
  NllLoss loss{};
  loss.values = of.self.data;
  loss.targets = static_cast<const int64_t*>(of.target.data);
  loss.rows = of.rows();
  loss.classes = of.classes();
  loss.self_rows = of.self_rows;
  loss.target_rows = of.target_rows;
  loss.loss_rows = of.loss_rows;
  loss.class_stride = of.self.strides[1];
  loss.ignored = of.ignored;
  loss.is_mean = of.reduction == native::kMeanOfRows;
  loss.is_reduced = of.reduction != native::kLossOfEachRow;
  loss.weight = row_numbers_of(call, of.weight, loss.classes);
  return loss;
}

Made nll_loss_kernel(Workshop& workshop, Call& call, int32_t) {
  const native::NllLossCall of = native::read_nll_loss(call);
  if (!call.ok()) return call.made(nullptr);
  NllLoss parameters = parameters_of(call, of);
  parameters.loss = numbers_of(call, of.loss);
  if (of.total) parameters.total = numbers_of(call, *of.total);
  if (!call.ok()) return call.made(nullptr);
  return workshop.kernel(
      source_for({of.self.dtype}, "dc_nll_loss", "nll_loss.h", "NllLoss", "nll_loss"), 1,
      parameters);
}

Made nll_loss_backward_kernel(Workshop& workshop, Call& call, int32_t) {
  const native::NllLossCall of = native::read_nll_loss_gradient(call);
  if (!call.ok()) return call.made(nullptr);
  const BoundTensor& to = *of.to;
  call.require(to.dtype == of.self.dtype, "the gradient must be of the values' type");
  native::CopyRegions zero;
  zero.fill(call, native::Region(to), 0.0);
  const NllLossBackward parameters{parameters_of(call, of),
                                   numbers_of(call, of.loss),
                                   numbers_of(call, *of.total),
                                   to.data,
                                   of.to_rows,
                                   to.strides[1]};
  if (!call.ok()) return call.made(nullptr);
  DC_ASSIGN_OR_RETURN(std::vector<Launch> launches, launches_of(workshop, call, zero));
  DC_ASSIGN_OR_RETURN(Launch launch,
                      workshop.launch(source_for({to.dtype}, "dc_nll_loss_gradients", "nll_loss.h",
                                                 "NllLossBackward", "nll_loss_gradients"),
                                      workshop.blocks_for(of.rows()), parameters));
  launches.push_back(std::move(launch));
  return workshop.kernel(std::move(launches));
}

constexpr ModelKernelRow kNormRows[] = {
    {"aten._fused_rms_norm.default", norm_kernel},
    {"aten._fused_rms_norm_backward.default", norm_backward_kernel},
    {"aten._log_softmax.default", log_softmax_kernel},
    {"aten._log_softmax_backward_data.default", softmax_backward_kernel},
    {"aten._safe_softmax.default", safe_softmax_kernel},
    {"aten._softmax.default", plain_softmax_kernel},
    {"aten._softmax_backward_data.default", softmax_backward_kernel},
    {"aten.native_layer_norm.default", norm_kernel},
    {"aten.native_layer_norm_backward.default", norm_backward_kernel},
    {"aten.nll_loss2d_backward.default", nll_loss_backward_kernel},
    {"aten.nll_loss2d_forward.default", nll_loss_kernel},
    {"aten.nll_loss_backward.default", nll_loss_backward_kernel},
    {"aten.nll_loss_forward.default", nll_loss_kernel},
};

}  // namespace

std::span<const ModelKernelRow> norm_kernels() { return kNormRows; }

}  // namespace dc::runtime::kernel::cuda
