// dc.cross_entropy and its gradient against the kernels that they stand for, one after the other:
// equal bits in every result.
#include <cmath>
#include <limits>
#include <random>

#include "tests/runtime/kernel/kernel_bench.h"

namespace dc::runtime {
namespace {

using base::DType;

constexpr int64_t kIgnored = -100;

struct Losses {
  std::vector<uint8_t> loss, total, gradient;
  bool operator==(const Losses&) const = default;
};

struct LossCase {
  int64_t rows = 3, classes = 7;
  DType dtype = DType::F32;
  int64_t reduction = 1, ignored = kIgnored;
  float gradient = 1;
  float scale = 3;  // of the logits
};

std::vector<uint8_t> bytes_of(KernelBench& bench, int32_t id) {
  const auto* start = bench.data<uint8_t>(id);
  return {start, start + KernelBench::bytes(bench.plan().tensors[static_cast<size_t>(id)])};
}

// Logits in their own type, and the class of each row.
struct Batch {
  std::vector<float> logits;
  std::vector<int64_t> targets;
};

Batch random_batch(const LossCase& of, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, of.scale);
  Batch batch;
  for (int64_t i = 0; i < of.rows * of.classes; ++i) batch.logits.push_back(normal(random));
  for (int64_t r = 0; r < of.rows; ++r)
    batch.targets.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(of.classes)));
  return batch;
}

void must_run(KernelBench& bench, const plan::Instruction& step) {
  const base::Status status = run_native(bench, step);
  ASSERT_TRUE(status.ok()) << step.op << ": " << status.to_string();
}

// The logits as the case's type has them.
int32_t place_logits(KernelBench& bench, const LossCase& of, const Batch& batch) {
  const int32_t wide = bench.filled(DType::F32, {of.rows, of.classes}, batch.logits);
  if (of.dtype == DType::F32) return wide;
  const int32_t narrow = bench.tensor(of.dtype, {of.rows, of.classes});
  must_run(bench, instruction("aten._to_copy.default", {tensor_arg(wide, "self")}, {narrow}));
  return narrow;
}

Losses apart(const LossCase& of, const Batch& batch) {
  KernelBench bench;
  const KernelBench::Sizes sizes{of.rows, of.classes};
  const int32_t logits = place_logits(bench, of, batch),
                targets = bench.filled(DType::I64, {of.rows}, batch.targets),
                g = bench.filled<float>(DType::F32, {}, {of.gradient}),
                y = bench.tensor(DType::F32, sizes), loss = bench.tensor(DType::F32, {}),
                total = bench.tensor(DType::F32, {}), nll = bench.tensor(DType::F32, sizes);
  int32_t wide = logits, gradient = bench.tensor(DType::F32, sizes);
  if (of.dtype != DType::F32) {
    wide = bench.tensor(DType::F32, sizes);
    must_run(bench, instruction("aten._to_copy.default", {tensor_arg(logits, "self")}, {wide}));
  }
  const auto kind = int_arg("reduction", of.reduction),
             ignored = int_arg("ignore_index", of.ignored);
  must_run(bench, instruction("aten._log_softmax.default",
                              {tensor_arg(wide, "self"), int_arg("dim", 1)}, {y}));
  must_run(bench, instruction("aten.nll_loss_forward.default",
                              {tensor_arg(y, "self"), tensor_arg(targets, "target"), kind, ignored},
                              {loss, total}));
  must_run(bench, instruction("aten.nll_loss_backward.default",
                              {tensor_arg(g, "grad_output"), tensor_arg(y, "self"),
                               tensor_arg(targets, "target"), kind, ignored,
                               tensor_arg(total, "total_weight")},
                              {nll}));
  must_run(bench,
           instruction("aten._log_softmax_backward_data.default",
                       {tensor_arg(nll, "grad_output"), tensor_arg(y, "output"), int_arg("dim", 1)},
                       {gradient}));
  if (of.dtype != DType::F32) {
    const int32_t narrow = bench.tensor(of.dtype, sizes);
    must_run(bench, instruction("aten._to_copy.default", {tensor_arg(gradient, "self")}, {narrow}));
    gradient = narrow;
  }
  return {bytes_of(bench, loss), bytes_of(bench, total), bytes_of(bench, gradient)};
}

Losses together(const LossCase& of, const Batch& batch) {
  KernelBench bench;
  const int32_t logits = place_logits(bench, of, batch),
                targets = bench.filled(DType::I64, {of.rows}, batch.targets),
                g = bench.filled<float>(DType::F32, {}, {of.gradient}),
                loss = bench.tensor(DType::F32, {}), total = bench.tensor(DType::F32, {}),
                largest = bench.tensor(DType::F32, {of.rows}),
                log_of_sum = bench.tensor(DType::F32, {of.rows});
  const auto kind = int_arg("reduction", of.reduction), ignored = int_arg("ignored", of.ignored);
  must_run(bench,
           instruction("dc.cross_entropy", {tensor_arg(logits), tensor_arg(targets), kind, ignored},
                       {loss, total, largest, log_of_sum}));
  must_run(bench,
           instruction("dc.cross_entropy_backward",
                       {tensor_arg(logits), tensor_arg(targets), tensor_arg(g), tensor_arg(total),
                        tensor_arg(largest), tensor_arg(log_of_sum), kind, ignored},
                       {logits}));
  return {bytes_of(bench, loss), bytes_of(bench, total), bytes_of(bench, logits)};
}

void expect_equal(const LossCase& of, const Batch& batch) {
  const Losses expected = apart(of, batch), got = together(of, batch);
  const std::string label = std::to_string(of.rows) + " rows of " + std::to_string(of.classes) +
                            " classes, type " + std::string(base::name(of.dtype)) + ", reduction " +
                            std::to_string(of.reduction);
  EXPECT_EQ(got.loss, expected.loss) << label;
  EXPECT_EQ(got.total, expected.total) << label;
  EXPECT_TRUE(got.gradient == expected.gradient) << label;
}

TEST(CrossEntropy, GivesTheBitsOfTheFourKernels) {
  uint32_t seed = 0;
  for (const int64_t classes : {1, 2, 7, 16, 17, 32, 255, 256, 257, 1000, 3001}) {
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
      for (const int64_t reduction : {1, 2}) {
        for (const float gradient : {1.0f, 65536.0f, -0.37f, 0.0f}) {
          const LossCase of{5, classes, dtype, reduction, kIgnored, gradient, 3};
          expect_equal(of, random_batch(of, ++seed));
        }
      }
    }
  }
}

TEST(CrossEntropy, LeavesOutIgnoredRows) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    for (const int64_t reduction : {1, 2}) {
      for (const int64_t ignored : {kIgnored, int64_t{2}}) {
        const LossCase of{6, 300, dtype, reduction, ignored, 2.5f, 3};
        Batch batch = random_batch(of, 77);
        batch.targets[1] = batch.targets[4] = ignored;
        expect_equal(of, batch);
      }
    }
  }
}

TEST(CrossEntropy, GivesTheBitsOfExtremeRows) {
  const float infinity = std::numeric_limits<float>::infinity();
  const LossCase of{6, 600, DType::F32, 2, kIgnored, 1, 3};
  Batch batch = random_batch(of, 5);
  const auto row = [&](int64_t r) { return batch.logits.begin() + r * of.classes; };
  std::fill_n(row(0), of.classes, 0.0f);
  std::fill_n(row(1), of.classes, -1e30f);
  row(2)[static_cast<long>(batch.targets[2])] = 1e30f;  // a loss of 0
  row(3)[static_cast<long>((batch.targets[3] + 1) % of.classes)] = 200;
  row(4)[static_cast<long>((batch.targets[4] + 1) % of.classes)] = -infinity;
  std::fill_n(row(5), of.classes, 3e38f);
  expect_equal(of, batch);
}

// All rows are left out: the mean is of nothing.
TEST(CrossEntropy, OfNothingIsNoNumber) {
  const LossCase of{3, 40, DType::F32, 1, kIgnored, 1, 3};
  Batch batch = random_batch(of, 9);
  batch.targets.assign(3, kIgnored);
  const Losses got = together(of, batch), expected = apart(of, batch);
  float loss, other;
  std::memcpy(&loss, got.loss.data(), 4);
  std::memcpy(&other, expected.loss.data(), 4);
  EXPECT_TRUE(std::isnan(loss) && std::isnan(other));
  EXPECT_EQ(got.total, expected.total);
  EXPECT_TRUE(got.gradient == expected.gradient);
}

TEST(CrossEntropy, RefusesClassesThatThereAreNot) {
  for (const int64_t target : {int64_t{-1}, int64_t{7}, std::numeric_limits<int64_t>::max()}) {
    KernelBench bench;
    const int32_t logits = bench.filled(DType::F32, {2, 7}, std::vector<float>(14, 1)),
                  targets = bench.filled<int64_t>(DType::I64, {2}, {0, target}),
                  loss = bench.tensor(DType::F32, {}), total = bench.tensor(DType::F32, {}),
                  largest = bench.tensor(DType::F32, {2}),
                  log_of_sum = bench.tensor(DType::F32, {2}),
                  g = bench.filled<float>(DType::F32, {}, {1}),
                  rows = bench.filled<float>(DType::F32, {2}, {1, 1});
    const auto kind = int_arg("reduction", 1), ignored = int_arg("ignored", kIgnored);
    const plan::Instruction steps[] = {
        instruction("dc.cross_entropy", {tensor_arg(logits), tensor_arg(targets), kind, ignored},
                    {loss, total, largest, log_of_sum}),
        instruction("dc.cross_entropy_backward",
                    {tensor_arg(logits), tensor_arg(targets), tensor_arg(g), tensor_arg(g),
                     tensor_arg(rows), tensor_arg(rows), kind, ignored},
                    {logits})};
    for (const plan::Instruction& step : steps) {
      const base::Status status = run_native(bench, step);
      EXPECT_EQ(status.code(), "DC6137") << step.op << ": " << status.to_string();
    }
  }
}

}  // namespace
}  // namespace dc::runtime
