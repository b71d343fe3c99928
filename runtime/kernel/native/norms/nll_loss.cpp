// nll_loss of rows or images of classes with class numbers as targets, and its gradient.
#include "runtime/kernel/native/copies/regions.h"
#include "runtime/kernel/native/indexing/index_outside.h"
#include "runtime/kernel/native/norms/loss_calls.h"
#include "runtime/kernel/native/norms/rows.h"
#include "runtime/kernel/native/registry.h"

namespace dc::runtime::kernel::native {
namespace {

// The operands of both directions.
struct Loss {
  explicit Loss(const NllLossCall& of)
      : values(of.self, 1),
        targets(static_cast<std::byte*>(of.target.data)),
        rows(of.rows()),
        classes(of.classes()),
        self_rows(of.self_rows),
        target_rows(of.target_rows),
        class_stride(of.self.strides[1]),
        ignored(of.ignored),
        reduction(of.reduction) {
    if (!of.weight) return;
    weight = RowTensor<float>(*of.weight, 1);
    weight_stride = of.weight->strides[0];
  }

  RowTensor<float> values, weight;  // log-probabilities; a number per class
  std::byte* targets;
  int64_t rows, classes;
  scalar::RowPlaces self_rows, target_rows;
  int64_t class_stride, weight_stride = 0, ignored, reduction;

  bool counts(int64_t target) const { return target != ignored; }
  bool fits(int64_t target) const { return target >= 0 && target < classes; }
  float weight_of(const std::byte* weights, int64_t target) const {
    return weights == nullptr ? 1.0f : weight.get(weights, target * weight_stride);
  }
};

class NllLoss final : public Kernel {
 public:
  explicit NllLoss(const NllLossCall& of) : loss_(of), to_(of.loss, 1), to_rows_(of.loss_rows) {
    if (of.total) total_ = RowTensor<float>(*of.total, 1);
  }
  base::Status launch(device::Stream& stream) override {
    std::byte *values = loss_.values.on(stream), *weights = loss_.weight.on(stream);
    std::byte* to = to_.on(stream);
    const auto* targets = reinterpret_cast<const int64_t*>(stream.resolve(loss_.targets));
    double sum = 0, total = 0;
    for (int64_t row = 0; row < loss_.rows; ++row) {
      const int64_t target = targets[loss_.target_rows.at(row)];
      float value = 0;
      if (loss_.counts(target)) {
        if (!loss_.fits(target)) return index_outside("nll_loss", target, loss_.classes);
        const float weight = loss_.weight_of(weights, target);
        value = -weight *
                loss_.values.get(values, loss_.self_rows.at(row) + target * loss_.class_stride);
        total += weight;
      }
      if (loss_.reduction == kLossOfEachRow) to_.put(to, to_rows_.at(row), value);
      sum += value;
    }
    if (loss_.reduction == kLossOfEachRow) total = 0;
    if (loss_.reduction != kLossOfEachRow)
      to_.put(to, 0, static_cast<float>(loss_.reduction == kMeanOfRows ? sum / total : sum));
    if (total_.given()) total_.put(total_.on(stream), 0, static_cast<float>(total));
    return {};
  }

 private:
  Loss loss_;
  RowTensor<float> to_, total_;
  scalar::RowPlaces to_rows_;
};

class NllLossBackward final : public Kernel {
 public:
  NllLossBackward(std::unique_ptr<CopyRegions> zero, const NllLossCall& of)
      : zero_(std::move(zero)),
        loss_(of),
        g_(of.loss, 1),
        total_(*of.total, 1),
        to_(*of.to, 1),
        g_rows_(of.loss_rows),
        to_rows_(of.to_rows),
        class_stride_(of.to->strides[1]) {}
  base::Status launch(device::Stream& stream) override {
    DC_RETURN_IF_ERROR(zero_->launch(stream));
    std::byte *weights = loss_.weight.on(stream), *g = g_.on(stream), *to = to_.on(stream);
    const auto* targets = reinterpret_cast<const int64_t*>(stream.resolve(loss_.targets));
    const float total = total_.get(total_.on(stream), 0);
    for (int64_t row = 0; row < loss_.rows; ++row) {
      const int64_t target = targets[loss_.target_rows.at(row)];
      if (!loss_.counts(target)) continue;
      if (!loss_.fits(target)) return index_outside("nll_loss", target, loss_.classes);
      float gradient = g_.get(g, loss_.reduction == kLossOfEachRow ? g_rows_.at(row) : 0);
      if (loss_.reduction == kMeanOfRows) gradient = gradient / total;
      to_.put(to, to_rows_.at(row) + target * class_stride_,
              -gradient * loss_.weight_of(weights, target));
    }
    return {};
  }

 private:
  std::unique_ptr<CopyRegions> zero_;
  Loss loss_;
  RowTensor<float> g_, total_, to_;
  scalar::RowPlaces g_rows_, to_rows_;
  int64_t class_stride_;
};

Made forward(Call& call) {
  const NllLossCall of = read_nll_loss(call);
  return call.finish<NllLoss>(of);
}

Made backward(Call& call) {
  const NllLossCall of = read_nll_loss_gradient(call);
  auto zero = std::make_unique<CopyRegions>();
  if (call.ok()) zero->fill(call, Region(*of.to), 0.0);
  return call.finish<NllLossBackward>(std::move(zero), of);
}

constexpr Row kRows[] = {
    {"aten.nll_loss2d_backward.default", backward},
    {"aten.nll_loss2d_forward.default", forward},
    {"aten.nll_loss_backward.default", backward},
    {"aten.nll_loss_forward.default", forward},
};

}  // namespace

std::span<const Row> loss_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
