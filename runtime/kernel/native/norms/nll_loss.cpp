// nll_loss of [rows, classes] with class numbers as targets, and its gradient.
#include "runtime/kernel/native/copies/regions.h"
#include "runtime/kernel/native/indexing/index_outside.h"
#include "runtime/kernel/native/norms/rows.h"
#include "runtime/kernel/native/registry.h"

namespace dc::runtime::kernel::native {
namespace {

enum Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };

// The operands of both directions.
struct Loss {
  RowTensor<float> values, weight;  // log-probabilities [rows, classes]; a number per class
  std::byte* targets = nullptr;
  int64_t rows = 0, classes = 0, row_stride = 0, class_stride = 0, target_stride = 0,
          weight_stride = 0, ignored = -100, reduction = kMean;

  bool counts(int64_t target) const { return target != ignored; }
  bool fits(int64_t target) const { return target >= 0 && target < classes; }
  float weight_of(const std::byte* weights, int64_t target) const {
    return weights == nullptr ? 1.0f : weight.get(weights, target * weight_stride);
  }
};

Loss read_loss(Call& call) {
  Loss loss;
  const BoundTensor self = call.tensor("self"), target = call.tensor("target");
  const auto weight = call.tensor_if("weight");
  loss.reduction = call.integer("reduction", kMean);
  loss.ignored = call.integer("ignore_index", -100);
  call.require(self.sizes.size() == 2 && target.sizes.size() == 1 &&
                   target.sizes[0] == self.sizes[0] && target.dtype == base::DType::I64,
               "only rows of classes with one class number each have a native kernel");
  call.require(base::is_floating(self.dtype) && self.dtype != base::DType::F64,
               "it does not take this element type");
  call.require(loss.reduction == kNone || loss.reduction == kMean || loss.reduction == kSum,
               "'reduction' is none that it knows");
  if (!call.ok()) return loss;
  call.require(!weight || (weight->sizes.size() == 1 && weight->sizes[0] == self.sizes[1]),
               "'weight' must have one number per class");
  if (!call.ok()) return loss;
  loss.values = RowTensor<float>(self, 1);
  loss.rows = self.sizes[0];
  loss.classes = self.sizes[1];
  loss.row_stride = self.strides[0];
  loss.class_stride = self.strides[1];
  loss.targets = static_cast<std::byte*>(target.data);
  loss.target_stride = target.strides[0];
  if (weight) {
    loss.weight = RowTensor<float>(*weight, 1);
    loss.weight_stride = weight->strides[0];
  }
  return loss;
}

// What the reduction leaves: a number per row, or one.
void check_reduced(Call& call, const Loss& loss, const BoundTensor& tensor) {
  const bool fits = loss.reduction == kNone
                        ? tensor.sizes.size() == 1 && tensor.sizes[0] == loss.rows
                        : tensor.numel() == 1;
  call.require(fits, "the loss or its gradient has another shape");
}

class NllLoss final : public Kernel {
 public:
  NllLoss(const Loss& loss, const BoundTensor& to, const std::optional<BoundTensor>& total)
      : loss_(loss), to_(to, 1), to_stride_(to.sizes.empty() ? 0 : to.strides[0]) {
    if (total) total_ = RowTensor<float>(*total, 1);
  }
  base::Status launch(device::Stream& stream) override {
    std::byte *values = loss_.values.on(stream), *weights = loss_.weight.on(stream);
    std::byte* to = to_.on(stream);
    const auto* targets = reinterpret_cast<const int64_t*>(stream.resolve(loss_.targets));
    double sum = 0, total = 0;
    for (int64_t row = 0; row < loss_.rows; ++row) {
      const int64_t target = targets[row * loss_.target_stride];
      float value = 0;
      if (loss_.counts(target)) {
        if (!loss_.fits(target)) return index_outside("nll_loss", target, loss_.classes);
        const float weight = loss_.weight_of(weights, target);
        value = -weight *
                loss_.values.get(values, row * loss_.row_stride + target * loss_.class_stride);
        total += weight;
      }
      if (loss_.reduction == kNone) to_.put(to, row * to_stride_, value);
      sum += value;
    }
    if (loss_.reduction == kNone) total = 0;
    if (loss_.reduction != kNone)
      to_.put(to, 0, static_cast<float>(loss_.reduction == kMean ? sum / total : sum));
    if (total_.given()) total_.put(total_.on(stream), 0, static_cast<float>(total));
    return {};
  }

 private:
  Loss loss_;
  RowTensor<float> to_, total_;
  int64_t to_stride_;
};

class NllLossBackward final : public Kernel {
 public:
  NllLossBackward(std::unique_ptr<CopyRegions> zero, const Loss& loss, const BoundTensor& g,
                  const BoundTensor& total, const BoundTensor& to)
      : zero_(std::move(zero)),
        loss_(loss),
        g_(g, 1),
        total_(total, 1),
        to_(to, 1),
        g_stride_(g.sizes.empty() ? 0 : g.strides[0]),
        row_stride_(to.strides[0]),
        class_stride_(to.strides[1]) {}
  base::Status launch(device::Stream& stream) override {
    DC_RETURN_IF_ERROR(zero_->launch(stream));
    std::byte *weights = loss_.weight.on(stream), *g = g_.on(stream), *to = to_.on(stream);
    const auto* targets = reinterpret_cast<const int64_t*>(stream.resolve(loss_.targets));
    const float total = total_.get(total_.on(stream), 0);
    for (int64_t row = 0; row < loss_.rows; ++row) {
      const int64_t target = targets[row * loss_.target_stride];
      if (!loss_.counts(target)) continue;
      if (!loss_.fits(target)) return index_outside("nll_loss", target, loss_.classes);
      float gradient = g_.get(g, loss_.reduction == kNone ? row * g_stride_ : 0);
      if (loss_.reduction == kMean) gradient = gradient / total;
      to_.put(to, row * row_stride_ + target * class_stride_,
              -gradient * loss_.weight_of(weights, target));
    }
    return {};
  }

 private:
  std::unique_ptr<CopyRegions> zero_;
  Loss loss_;
  RowTensor<float> g_, total_, to_;
  int64_t g_stride_, row_stride_, class_stride_;
};

Made forward(Call& call) {
  const Loss loss = read_loss(call);
  const BoundTensor to = call.output(0);
  std::optional<BoundTensor> total;
  if (call.has_result(1)) total = call.output(1);
  check_reduced(call, loss, to);
  call.require(!total || total->numel() == 1, "the sum of weights must be one number");
  return call.finish<NllLoss>(loss, to, total);
}

Made backward(Call& call) {
  const Loss loss = read_loss(call);
  const BoundTensor g = call.tensor("grad_output"), total = call.tensor("total_weight"),
                    to = call.output(0);
  call.same_sizes(call.tensor("self"), to);
  check_reduced(call, loss, g);
  call.require(total.numel() == 1, "the sum of weights must be one number");
  auto zero = std::make_unique<CopyRegions>();
  zero->fill(call, Region(to), 0.0);
  if (!call.ok()) return call.made(nullptr);
  return call.finish<NllLossBackward>(std::move(zero), loss, g, total, to);
}

constexpr Row kRows[] = {
    {"aten.nll_loss_backward.default", backward},
    {"aten.nll_loss_forward.default", forward},
};

}  // namespace

std::span<const Row> loss_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
