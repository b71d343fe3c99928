// log_softmax and nll_loss of rows of logits [rows, classes] in one kernel, and both gradients in
// another, which has them in place of the logits. Between the two only two numbers of each row are
// kept, no log-probabilities. They give the bits of the four kernels of softmax.cpp and
// nll_loss.cpp one after the other, with a cast of 16-bit logits to f32 before them and one back
// behind.
#include "runtime/kernel/native/norms/class_rows.h"
#include "runtime/kernel/native/registry.h"

namespace dc::runtime::kernel::native {
namespace {

struct ClassRows {
  RowTensor<float> logits;
  ClassTargets targets;
};

class CrossEntropy final : public Kernel {
 public:
  CrossEntropy(const ClassRows& of, const Dense& loss, const Dense& total, const Dense& largest,
               const Dense& log_of_sum)
      : of_(of), loss_(loss), total_(total), largest_(largest), log_of_sum_(log_of_sum) {}

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
  CrossEntropyBackward(const ClassRows& of, const Dense& g, const Dense& total,
                       const Dense& largest, const Dense& log_of_sum)
      : of_(of), g_(g), total_(total), largest_(largest), log_of_sum_(log_of_sum) {}

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

ClassRows read_class_rows(Call& call) {
  ClassRows of;
  const Dense logits = call.operand(0), target = call.operand(1, base::DType::I64);
  of.targets.rows = target.count;
  of.targets.classes = call.columns(0);
  of.targets.ignored = call.integer("ignored");
  const int64_t reduction = call.integer("reduction");
  of.targets.is_mean = reduction == kMeanOfRows;
  call.require(reduction == kMeanOfRows || reduction == kSumOfRows,
               "'reduction' must be 1, a mean, or 2, a sum");
  call.require(base::is_floating(logits.dtype) && logits.dtype != base::DType::F64,
               "the logits must be f32, bf16 or f16");
  const int64_t classes = of.targets.classes;
  call.require(classes > 0 && logits.count % classes == 0 && logits.count / classes == target.count,
               "the logits must be a row of classes for each target");
  if (!call.ok()) return of;
  of.targets.data = target.address();
  of.logits = RowTensor<float>(BoundTensor{logits.data, logits.dtype, {}, {}}, 1);
  return of;
}

// Numbers that both directions know.
void check_numbers(Call& call, const ClassRows& of, const Dense& one, const Dense& total,
                   const Dense& largest, const Dense& log_of_sum) {
  const bool are_f32 = one.dtype == base::DType::F32 && total.dtype == base::DType::F32 &&
                       largest.dtype == base::DType::F32 && log_of_sum.dtype == base::DType::F32;
  call.require(are_f32 && one.count == 1 && total.count == 1 && largest.count == of.targets.rows &&
                   log_of_sum.count == of.targets.rows,
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
