// log_softmax and nll_loss of rows of logits [rows, classes] in one kernel, and both gradients in
// another, which has them in place of the logits. Between the two only two numbers of each row are
// kept, no log-probabilities. They give the bits of the four kernels of softmax.cpp and
// nll_loss.cpp one after the other, with a cast of 16-bit logits to f32 before them and one back
// behind.
#include "runtime/kernel/native/norms/class_rows.h"
#include "runtime/kernel/native/norms/loss_calls.h"
#include "runtime/kernel/native/registry.h"

namespace dc::runtime::kernel::native {
namespace {

struct ClassRows {
  explicit ClassRows(const CrossEntropyCall& of)
      : logits(BoundTensor{of.logits.data, of.logits.dtype, {}, {}}, 1),
        targets{of.target.address(), of.rows, of.classes, of.ignored, of.is_mean} {}

  RowTensor<float> logits;
  ClassTargets targets;
};

class CrossEntropy final : public Kernel {
 public:
  explicit CrossEntropy(const CrossEntropyCall& of)
      : of_(of),
        loss_(of.loss),
        total_(of.total),
        largest_(of.largest),
        log_of_sum_(of.log_of_sum) {}

  base::Status launch(device::Stream& stream) override {
    std::byte* logits = of_.logits.on(stream);
    const int64_t* targets = of_.targets.on(stream);
    auto *largest = largest_.on<float>(stream), *log_of_sum = log_of_sum_.on<float>(stream);
    double sum = 0, total = 0;
    for (int64_t r = 0; r < of_.targets.rows; ++r) {
      DC_RETURN_IF_ERROR(of_.targets.check(targets[r]));
      const std::byte* row = of_.logits.row(logits, r * of_.targets.classes);
      const RowNumbers numbers = row_numbers(sum_powers(of_.logits, row, of_.targets.classes));
      largest[r] = numbers.largest;
      log_of_sum[r] = numbers.log_of_sum;
      if (!of_.targets.counts(targets[r])) continue;
      sum += row_loss(of_.logits.get(row, targets[r]), numbers);
      total += 1;
    }
    *loss_.on<float>(stream) = static_cast<float>(of_.targets.is_mean ? sum / total : sum);
    *total_.on<float>(stream) = static_cast<float>(total);
    return {};
  }

 private:
  ClassRows of_;
  Dense loss_, total_, largest_, log_of_sum_;
};

class CrossEntropyBackward final : public Kernel {
 public:
  explicit CrossEntropyBackward(const CrossEntropyCall& of)
      : of_(of), g_(of.loss), total_(of.total), largest_(of.largest), log_of_sum_(of.log_of_sum) {}

  base::Status launch(device::Stream& stream) override {
    std::byte* logits = of_.logits.on(stream);
    const int64_t* targets = of_.targets.on(stream);
    const auto *largest = largest_.on<float>(stream), *log_of_sum = log_of_sum_.on<float>(stream);
    float gradient = *g_.on<float>(stream);
    if (of_.targets.is_mean) gradient = gradient / *total_.on<float>(stream);
    const int64_t classes = of_.targets.classes;
    for (int64_t r = 0; r < of_.targets.rows; ++r) {
      DC_RETURN_IF_ERROR(of_.targets.check(targets[r]));
      std::byte* row = of_.logits.row(logits, r * classes);
      write_gradients(of_.logits, row, row, classes, targets[r],
                      {gradient, {largest[r], log_of_sum[r]}, of_.targets.counts(targets[r])});
    }
    return {};
  }

 private:
  ClassRows of_;
  Dense g_, total_, largest_, log_of_sum_;
};

Made make_cross_entropy(Call& call) { return call.finish<CrossEntropy>(read_cross_entropy(call)); }
Made make_cross_entropy_backward(Call& call) {
  return call.finish<CrossEntropyBackward>(read_cross_entropy_gradient(call));
}

constexpr Row kRows[] = {
    {"dc.cross_entropy", make_cross_entropy},
    {"dc.cross_entropy_backward", make_cross_entropy_backward},
};

}  // namespace

std::span<const Row> cross_entropy_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
