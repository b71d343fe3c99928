// log_softmax and nll_loss of rows of logits [rows, classes] in one kernel, and both gradients in
// another, which has them in place of the logits. Between the two only two numbers of each row are
// kept, no log-probabilities. They give the bits of the four kernels of softmax.cpp and
// nll_loss.cpp one after the other, with a cast of 16-bit logits to f32 before them and one back
// behind.
//
// The gradient of the log-probabilities is 0 but for the row's class, and what is added to zeros
// stays as it is, so its sum over the row needs no pass.
#include "runtime/kernel/native/indexing/index_outside.h"
#include "runtime/kernel/native/norms/log_softmax_rows.h"
#include "runtime/kernel/native/registry.h"

namespace dc::runtime::kernel::native {
namespace {

constexpr int64_t kMeanOfRows = 1, kSumOfRows = 2;  // torch's numbers of reductions

struct ClassRows {
  RowTensor<float> logits;
  std::byte* targets = nullptr;
  int64_t rows = 0, classes = 0, ignored = -100;
  bool is_mean = true;

  const int64_t* targets_on(const device::Stream& stream) const {
    return reinterpret_cast<const int64_t*>(stream.resolve(targets));
  }
  base::Status check(int64_t target) const {
    if (target == ignored || (target >= 0 && target < classes)) return {};
    return index_outside("cross_entropy", target, classes);
  }
};

class CrossEntropy final : public Kernel {
 public:
  CrossEntropy(const ClassRows& of, const Dense& loss, const Dense& total, const Dense& largest,
               const Dense& log_of_sum)
      : of_(of), loss_(loss), total_(total), largest_(largest), log_of_sum_(log_of_sum) {}

  base::Status launch(device::Stream& stream) override {
    std::byte* logits = of_.logits.on(stream);
    const int64_t* targets = of_.targets_on(stream);
    auto *largest = largest_.on<float>(stream), *log_of_sum = log_of_sum_.on<float>(stream);
    double sum = 0, total = 0;
    for (int64_t r = 0; r < of_.rows; ++r) {
      DC_RETURN_IF_ERROR(of_.check(targets[r]));
      const std::byte* row = of_.logits.row(logits, r * of_.classes);
      const int64_t n = of_.classes;
      largest[r] =
          fold_row<MaxFold<float>, float>(of_.logits.reader(), row, n, MaxFold<float>::neutral());
      alignas(64) float powers[kBlock];
      log_of_sum[r] = static_cast<float>(math::log(
          sum_of_powers(of_.logits, row, n, largest[r], [&](int64_t) { return powers; })));
      if (targets[r] == of_.ignored) continue;
      const float x = of_.logits.get(row, targets[r]);
      float value;
      log_softmax_of(&value, &x, largest[r], log_of_sum[r], 1);
      sum += -value;
      total += 1;
    }
    *loss_.on<float>(stream) = static_cast<float>(of_.is_mean ? sum / total : sum);
    *total_.on<float>(stream) = static_cast<float>(total);
    return {};
  }

 private:
  ClassRows of_;
  Dense loss_, total_, largest_, log_of_sum_;
};

class CrossEntropyBackward final : public Kernel {
 public:
  CrossEntropyBackward(const ClassRows& of, const Dense& g, const Dense& total,
                       const Dense& largest, const Dense& log_of_sum)
      : of_(of), g_(g), total_(total), largest_(largest), log_of_sum_(log_of_sum) {}

  base::Status launch(device::Stream& stream) override {
    std::byte* logits = of_.logits.on(stream);
    const int64_t* targets = of_.targets_on(stream);
    const auto *largest = largest_.on<float>(stream), *log_of_sum = log_of_sum_.on<float>(stream);
    float gradient = *g_.on<float>(stream);
    if (of_.is_mean) gradient = gradient / *total_.on<float>(stream);
    for (int64_t r = 0; r < of_.rows; ++r) {
      DC_RETURN_IF_ERROR(of_.check(targets[r]));
      change_row(of_.logits.row(logits, r * of_.classes), targets[r], -gradient, largest[r],
                 log_of_sum[r]);
    }
    return {};
  }

 private:
  // `gradient`: of the log-probability of the row's class.
  void change_row(std::byte* row, int64_t target, float gradient, float largest,
                  float log_of_sum) const {
    alignas(64) float in[kBlock], y[kBlock], out_buffer[kBlock], gradients[kBlock] = {};
    const bool counts = target != of_.ignored;
    const float sum = counts ? 0.0f + gradient : 0.0f;  // -0 becomes 0, as in a sum
    in_blocks(of_.classes, [&](int64_t first, int64_t count) {
      const int64_t place = target - first;
      const bool is_here = counts && place >= 0 && place < count;
      if (is_here) gradients[place] = gradient;
      log_softmax_of(y, of_.logits.read(in, row, first, count), largest, log_of_sum, count);
      log_softmax_gradient(of_.logits.target(out_buffer, row, first), gradients, y, sum, count);
      of_.logits.write(out_buffer, row, first, count);
      if (is_here) gradients[place] = 0;
    });
  }

  ClassRows of_;
  Dense g_, total_, largest_, log_of_sum_;
};

ClassRows read_class_rows(Call& call) {
  ClassRows of;
  const Dense logits = call.operand(0), target = call.operand(1, base::DType::I64);
  of.rows = target.count;
  of.classes = call.columns(0);
  of.ignored = call.integer("ignored");
  const int64_t reduction = call.integer("reduction");
  of.is_mean = reduction == kMeanOfRows;
  call.require(reduction == kMeanOfRows || reduction == kSumOfRows,
               "'reduction' must be 1, a mean, or 2, a sum");
  call.require(base::is_floating(logits.dtype) && logits.dtype != base::DType::F64,
               "the logits must be f32, bf16 or f16");
  call.require(
      of.classes > 0 && logits.count % of.classes == 0 && logits.count / of.classes == of.rows,
      "the logits must be a row of classes for each target");
  if (!call.ok()) return of;
  of.targets = target.address();
  of.logits = RowTensor<float>(BoundTensor{logits.data, logits.dtype, {}, {}}, 1);
  return of;
}

// Numbers that both directions know.
void check_numbers(Call& call, const ClassRows& of, const Dense& one, const Dense& total,
                   const Dense& largest, const Dense& log_of_sum) {
  const bool are_f32 = one.dtype == base::DType::F32 && total.dtype == base::DType::F32 &&
                       largest.dtype == base::DType::F32 && log_of_sum.dtype == base::DType::F32;
  call.require(are_f32 && one.count == 1 && total.count == 1 && largest.count == of.rows &&
                   log_of_sum.count == of.rows,
               "there must be f32 numbers: the loss and the sum of weights, and two of each row");
}

Made make_cross_entropy(Call& call) {
  const ClassRows of = read_class_rows(call);
  const Dense loss = call.result(0), total = call.result(1), largest = call.result(2),
              log_of_sum = call.result(3);
  check_numbers(call, of, loss, total, largest, log_of_sum);
  return call.finish<CrossEntropy>(of, loss, total, largest, log_of_sum);
}

Made make_cross_entropy_backward(Call& call) {
  const ClassRows of = read_class_rows(call);
  const Dense g = call.operand(2), total = call.operand(3), largest = call.operand(4),
              log_of_sum = call.operand(5);
  check_numbers(call, of, g, total, largest, log_of_sum);
  return call.finish<CrossEntropyBackward>(of, g, total, largest, log_of_sum);
}

constexpr Row kRows[] = {
    {"dc.cross_entropy", make_cross_entropy},
    {"dc.cross_entropy_backward", make_cross_entropy_backward},
};

}  // namespace

std::span<const Row> cross_entropy_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
