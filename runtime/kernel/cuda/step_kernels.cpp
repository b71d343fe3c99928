#include "runtime/kernel/cuda/step_kernels.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "runtime/kernel/cuda/block.h"
#include "runtime/kernel/cuda/hand_source.h"
#include "runtime/kernel/cuda/kernels/parameters.h"
#include "runtime/kernel/native/dropout.h"
#include "runtime/kernel/native/elementwise.h"
#include "runtime/kernel/native/reduce.h"
#include "runtime/kernel/native/update.h"

namespace dc::runtime::kernel::cuda {
namespace {

using base::DType;
using base::Result;
using native::Call;
using native::Dense;
using native::Made;

template <typename T>
T* at(const Dense& tensor) {
  return static_cast<T*>(tensor.data);
}

// Whether four elements may begin at all of these.
bool in_fours(std::initializer_list<Dense> tensors) {
  return std::ranges::all_of(tensors, [](const Dense& tensor) {
    return reinterpret_cast<uintptr_t>(tensor.data) %
               (4 * static_cast<uintptr_t>(base::byte_size(tensor.dtype))) ==
           0;
  });
}

Updated updated(const Dense& p, const Dense& g, const Dense& copy, bool in_fours) {
  return {at<float>(p), g.data, copy.data, p.count, in_fours};
}

// One thread for four elements, or several times four.
template <typename Parameters>
Made update_kernel(Workshop& workshop, const KernelSource& source, const Dense& p,
                   const Parameters& parameters) {
  std::vector<Launch> launches(1);
  DC_ASSIGN_OR_RETURN(launches[0],
                      workshop.launch(source, workshop.blocks_for((p.count + 3) / 4), parameters));
  workshop.keep_resident(launches[0]);
  return workshop.kernel(std::move(launches));
}

Made adamw_kernel(Workshop& workshop, Call& call, int32_t) {
  const native::AdamWOperands o = native::read_adamw(call);
  if (!call.ok()) return call.made(nullptr);
  return update_kernel(
      workshop, source_for({o.g.dtype, o.copy.dtype}, "dc_adamw", "update.h", "AdamW", "adamw"),
      o.p,
      AdamW{updated(o.p, o.g, o.copy, in_fours({o.p, o.m, o.v, o.g, o.copy})), at<float>(o.m),
            at<float>(o.v), o.control.at()});
}

Made sgd_kernel(Workshop& workshop, Call& call, int32_t) {
  const native::SgdOperands o = native::read_sgd(call);
  if (!call.ok()) return call.made(nullptr);
  return update_kernel(
      workshop, source_for({o.g.dtype, o.copy.dtype}, "dc_sgd", "update.h", "Sgd", "sgd"), o.p,
      Sgd{updated(o.p, o.g, o.copy, in_fours({o.p, o.buffer, o.g, o.copy})), at<float>(o.buffer),
          o.control.at(), o.momentum, o.nesterov});
}

Made dropout_kernel(Workshop& workshop, Call& call, int32_t) {
  const native::DropoutOperands o = native::read_dropout(call);
  if (!call.ok()) return call.made(nullptr);
  return workshop.kernel(source_for({o.x.dtype}, "dc_dropout", "dropout.h", "Dropout", "dropout"),
                         workshop.blocks_for((o.x.count + 3) / 4),
                         Dropout{o.x.data, o.y.data, at<uint8_t>(o.mask), at<const uint64_t>(o.rng),
                                 o.x.count, o.op, o.threshold, o.scale});
}

// Whether packs of elements may begin where the counted range does.
bool in_packs(const native::SquareSumOperands& o) {
  const std::byte* const first = o.g.address() + o.counted.first * base::byte_size(o.g.dtype);
  return reinterpret_cast<uintptr_t>(first) % 16 == 0;
}

Made square_sum_kernel(Workshop& workshop, Call& call, int32_t stream) {
  const native::SquareSumOperands o = native::read_square_sum(call);
  if (!call.ok()) return call.made(nullptr);
  DC_ASSIGN_OR_RETURN(std::byte* const parts,
                      workshop.scratch(stream, int64_t{2 * sizeof(double)} * kSquareSumBlocks));
  DC_ASSIGN_OR_RETURN(unsigned* const done, workshop.block_counter(stream));
  const int64_t most = std::max<int64_t>((o.counted.count + kSquareSumPack - 1) / kSquareSumPack,
                                         o.checked.count - o.counted.count);
  const auto blocks = static_cast<unsigned>(
      std::clamp<int64_t>((most + kBlockThreads - 1) / kBlockThreads, 1, kSquareSumBlocks));
  return workshop.kernel(
      source_for({o.g.dtype}, "dc_square_sum", "sums.h", "SquareSum", "square_sum"), blocks,
      SquareSum{o.g.data, at<const double>(o.hyperparameters), o.counted.first, o.counted.count,
                o.checked.first, o.checked.count, in_packs(o), reinterpret_cast<double*>(parts),
                done, at<double>(o.row) + o.cell});
}

Made add_loss_kernel(Workshop& workshop, Call& call, int32_t) {
  const native::AddLossOperands o = native::read_add_loss(call);
  if (!call.ok()) return call.made(nullptr);
  return workshop.kernel(source_for({o.loss.dtype}, "dc_add_loss", "sums.h", "AddLoss", "add_loss"),
                         1, AddLoss{at<double>(o.sum), o.loss.data});
}

Made check_finite_kernel(Workshop& workshop, Call& call, int32_t) {
  const native::CheckFiniteOperands o = native::read_check_finite(call);
  if (!call.ok()) return call.made(nullptr);
  return workshop.kernel(
      source_of("dc_check_finite", "sums.h", "scalar::CheckFinite", "check_finite"), 1,
      scalar::CheckFinite{at<double>(o.scalars), at<const double>(o.row),
                          at<const double>(o.losses), o.losses.count, o.param});
}

Made clip_and_check_kernel(Workshop& workshop, Call& call, int32_t) {
  const native::ClipAndCheckOperands o = native::read_clip_and_check(call);
  if (!call.ok()) return call.made(nullptr);
  return workshop.kernel(
      source_of("dc_clip_and_check", "sums.h", "scalar::ClipAndCheck", "clip_and_check"), 1,
      scalar::ClipAndCheck{at<double>(o.scalars), at<const double>(o.table),
                           at<const double>(o.hyperparameters), o.ranks, o.parameters, o.clip});
}

struct StepKernelRow {
  std::string_view op;
  StepKernel make;
};
constexpr StepKernelRow kStepKernels[] = {
    {"dc.adamw", adamw_kernel},
    {"dc.add_loss", add_loss_kernel},
    {"dc.check_finite", check_finite_kernel},
    {"dc.clip_and_check", clip_and_check_kernel},
    {"dc.dropout", dropout_kernel},
    {"dc.sgd", sgd_kernel},
    {"dc.square_sum", square_sum_kernel},
};

}  // namespace

StepKernel find_step_kernel(std::string_view op) {
  const auto* row = std::ranges::find(kStepKernels, op, &StepKernelRow::op);
  return row == std::end(kStepKernels) ? nullptr : row->make;
}

}  // namespace dc::runtime::kernel::cuda
