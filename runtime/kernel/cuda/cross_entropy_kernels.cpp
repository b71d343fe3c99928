#include "runtime/kernel/cuda/block.h"
#include "runtime/kernel/cuda/hand_source.h"
#include "runtime/kernel/cuda/kernels/parameters.h"
#include "runtime/kernel/cuda/model_kernels.h"
#include "runtime/kernel/native/norms/class_rows.h"

namespace dc::runtime::kernel::cuda {
namespace {

using base::DType;
using base::Result;
using native::Call;
using native::Dense;
using native::Made;

CrossEntropy read_rows(Call& call, DType* dtype) {
  const Dense logits = call.operand(0), target = call.operand(1, DType::I64);
  CrossEntropy rows{};
  rows.logits = logits.data;
  rows.targets = static_cast<const int64_t*>(target.data);
  rows.rows = target.count;
  rows.classes = call.columns(0);
  rows.ignored = call.integer("ignored");
  const int64_t reduction = call.integer("reduction");
  rows.is_mean = reduction == native::kMeanOfRows;
  *dtype = logits.dtype;
  call.require(rows.is_mean || reduction == native::kSumOfRows,
               "'reduction' must be 1, a mean, or 2, a sum");
  call.require(base::is_floating(logits.dtype) && logits.dtype != DType::F64,
               "the logits must be f32, bf16 or f16");
  call.require(rows.classes > 0 && logits.count == rows.rows * rows.classes,
               "the logits must be a row of classes for each target");
  return rows;
}

// Numbers that both directions know.
void read_numbers(Call& call, CrossEntropy& rows, const Dense& total, const Dense& largest,
                  const Dense& log_of_sum) {
  const bool are_f32 =
      total.dtype == DType::F32 && largest.dtype == DType::F32 && log_of_sum.dtype == DType::F32;
  call.require(
      are_f32 && total.count == 1 && largest.count == rows.rows && log_of_sum.count == rows.rows,
      "there must be f32 numbers: the sum of weights, and two of each row");
  rows.total = static_cast<float*>(total.data);
  rows.largest = static_cast<float*>(largest.data);
  rows.log_of_sum = static_cast<float*>(log_of_sum.data);
}

Made cross_entropy_kernel(Workshop& workshop, Call& call, int32_t) {
  DType dtype = DType::F32;
  CrossEntropy rows = read_rows(call, &dtype);
  const Dense loss = call.result(0);
  read_numbers(call, rows, call.result(1), call.result(2), call.result(3));
  call.require(loss.dtype == DType::F32 && loss.count == 1, "the loss must be one f32 number");
  if (!call.ok()) return call.made(nullptr);
  rows.loss = static_cast<float*>(loss.data);
  const auto source = [&](const char* function) {
    return source_for({dtype}, std::string("dc_") + function, "cross_entropy.h", "CrossEntropy",
                      function);
  };
  std::vector<Launch> launches(2);
  DC_ASSIGN_OR_RETURN(launches[0],
                      workshop.launch(source("cross_entropy_rows"),
                                      workshop.blocks_for(rows.rows * kBlockThreads), rows));
  DC_ASSIGN_OR_RETURN(launches[1], workshop.launch(source("cross_entropy_loss"), 1, rows));
  return workshop.kernel(std::move(launches));
}

Made cross_entropy_backward_kernel(Workshop& workshop, Call& call, int32_t) {
  DType dtype = DType::F32;
  CrossEntropy rows = read_rows(call, &dtype);
  const Dense gradient = call.operand(2);
  read_numbers(call, rows, call.operand(3), call.operand(4), call.operand(5));
  call.require(gradient.dtype == DType::F32 && gradient.count == 1,
               "the gradient of the loss must be one f32 number");
  if (!call.ok()) return call.made(nullptr);
  rows.loss_gradient = static_cast<const float*>(gradient.data);
  return workshop.kernel(source_for({dtype}, "dc_cross_entropy_gradients", "cross_entropy.h",
                                    "CrossEntropy", "cross_entropy_gradients"),
                         workshop.blocks_for(rows.rows * rows.classes), rows);
}

constexpr ModelKernelRow kCrossEntropyRows[] = {
    {"dc.cross_entropy", cross_entropy_kernel},
    {"dc.cross_entropy_backward", cross_entropy_backward_kernel},
};

}  // namespace

std::span<const ModelKernelRow> cross_entropy_kernels() { return kCrossEntropyRows; }

}  // namespace dc::runtime::kernel::cuda
