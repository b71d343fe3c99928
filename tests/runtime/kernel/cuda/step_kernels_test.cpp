// Kernels of the step's own operators on the double of a GPU (tests/double) next to the native
// kernels of the CPU. What runs is C++ of the host's compiler; nothing about GPUs follows from it.
#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "src/base/step_scalars.h"
#include "tests/runtime/kernel/cuda/gpu_bench.h"
#include "tests/runtime/kernel/cuda/kernel_cache.h"

namespace dc::runtime {
namespace {

using base::DType;

constexpr int64_t kSizes[] = {1, 255, 3000, 20000};

class Updates {
 public:
  Updates(int64_t n, double allowed, double beta1, double step) {
    std::vector<double> scalars(base::kScalarFinite + 3, 0);
    scalars[base::kScalarClip] = 0.75;
    scalars[base::kScalarFinite + 2] = allowed;
    std::vector<double> hyperparameters(base::kHyperGroups + 2 * base::kHyperPerGroup, 0);
    hyperparameters[base::kHyperGradScale] = 0.3;
    hyperparameters[base::kHyperStep] = step;
    double* group = hyperparameters.data() + base::kHyperGroups + base::kHyperPerGroup;
    group[base::kGroupLr] = 1e-2;
    group[base::kGroupWeightDecay] = 0.1;
    group[base::kGroupBeta1] = beta1;
    group[base::kGroupBeta2] = 0.95;
    group[base::kGroupEps] = 1e-8;
    group[base::kGroupMomentum] = 0.9;
    group[base::kGroupDampening] = 0.25;
    p = bench.filled(DType::F32, {n}, noise(n, 1));
    m = bench.filled(DType::F32, {n}, noise(n, 2));
    std::vector<float> squares = noise(n, 3);
    for (float& square : squares) square *= square;
    v = bench.filled(DType::F32, {n}, squares);
    g = bench.filled(DType::F32, {n}, noise(n, 4));
    for (const DType dtype : {DType::BF16, DType::F16, DType::F64}) {
      narrow.push_back({bench.tensor(dtype, {n}), bench.tensor(dtype, {n})});
      EXPECT_TRUE(
          run_native(bench, instruction("dc.cast", {tensor_arg(g)}, {narrow.back().gradient}))
              .ok());
    }
    control = {tensor_arg(bench.filled(DType::F64, {base::kScalarFinite + 3}, scalars)),
               tensor_arg(bench.filled(DType::F64, {base::kHyperGroups + 2 * base::kHyperPerGroup},
                                       hyperparameters)),
               int_arg("param", 2), int_arg("group", 1), int_arg("clip", 1)};
  }
  plan::Instruction adamw() const {
    std::vector<plan::Arg> args = {tensor_arg(p), tensor_arg(m), tensor_arg(v), tensor_arg(g)};
    args.insert(args.end(), control.begin(), control.end());
    return instruction("dc.adamw", args);
  }
  plan::Instruction sgd(bool momentum, bool nesterov) const {
    std::vector<plan::Arg> args = {tensor_arg(p), tensor_arg(momentum ? m : p), tensor_arg(g)};
    args.insert(args.end(), control.begin(), control.end());
    args.push_back(int_arg("momentum", momentum));
    args.push_back(int_arg("nesterov", nesterov));
    return instruction("dc.sgd", args);
  }
  // With the gradient and a copy of the parameter in another type.
  static plan::Instruction in(plan::Instruction update, int32_t gradient, int32_t copy) {
    const size_t state = update.op == "dc.adamw" ? 3 : 2;
    update.args[state] = tensor_arg(gradient);
    update.args.insert(update.args.begin() + static_cast<std::ptrdiff_t>(state) + 3,
                       tensor_arg(copy));
    return update;
  }
  struct Narrow {
    int32_t gradient, copy;
  };
  KernelBench bench;
  int32_t p, m, v, g;
  std::vector<Narrow> narrow;
  std::vector<plan::Arg> control;
};

TEST(CudaStepKernels, AdamWGivesTheBitsOfTheCpu) {
  for (const int64_t n : kSizes) {
    for (const double beta1 : {0.9, 0.25}) {  // lerp from either end
      Updates updates(n, 1, beta1, 3);
      expect_bits_of_cpu(updates.bench, updates.adamw());
      for (const auto& [gradient, copy] : updates.narrow)
        expect_bits_of_cpu(updates.bench, Updates::in(updates.adamw(), gradient, copy));
    }
  }
}

TEST(CudaStepKernels, SgdGivesTheBitsOfTheCpu) {
  for (const int64_t n : kSizes) {
    for (const double step : {1.0, 2.0}) {
      Updates updates(n, 1, 0.9, step);
      expect_bits_of_cpu(updates.bench, updates.sgd(false, false));
      expect_bits_of_cpu(updates.bench, updates.sgd(true, false));
      expect_bits_of_cpu(updates.bench, updates.sgd(true, true));
      for (const auto& [gradient, copy] : updates.narrow)
        expect_bits_of_cpu(updates.bench, Updates::in(updates.sgd(true, false), gradient, copy));
    }
  }
}

TEST(CudaStepKernels, UpdatesThatMayNotRunTouchNothing) {
  Updates updates(100, 0, 0.9, 1);
  const std::vector<std::byte> before(updates.bench.used().begin(), updates.bench.used().end());
  EXPECT_EQ(after_on_gpu(updates.bench, updates.adamw()), before);
  EXPECT_EQ(after_on_gpu(updates.bench, updates.sgd(true, false)), before);
  const auto& [gradient, copy] = updates.narrow[0];
  expect_bits_of_cpu(updates.bench, Updates::in(updates.adamw(), gradient, copy));
}

// Where four elements do not begin, each is moved alone.
TEST(CudaStepKernels, UpdatesOfOddPlacesGiveTheBitsOfTheCpu) {
  Updates updates(1001, 1, 0.9, 3);
  for (const int32_t tensor : {updates.p, updates.m, updates.v, updates.g}) {
    updates.bench.plan().tensors[static_cast<size_t>(tensor)].offset = 4;
    updates.bench.plan().tensors[static_cast<size_t>(tensor)].sizes = {1000};
  }
  expect_bits_of_cpu(updates.bench, updates.adamw());
  expect_bits_of_cpu(updates.bench, updates.sgd(true, true));
}

TEST(CudaStepKernels, AccumulateAndCastGiveTheBitsOfTheCpu) {
  constexpr int64_t kCount = 1000;
  KernelBench bench;
  const int32_t x = bench.filled(DType::F32, {kCount}, noise(kCount, 5));
  for (const DType dtype : {DType::BF16, DType::F16, DType::F64, DType::I32, DType::Bool}) {
    const int32_t other = bench.tensor(dtype, {kCount}), back = bench.tensor(DType::F32, {kCount});
    const plan::Instruction cast = instruction("dc.cast", {tensor_arg(x)}, {other});
    expect_bits_of_cpu(bench, cast);
    ASSERT_TRUE(run_native(bench, cast).ok());
    expect_bits_of_cpu(bench, instruction("dc.cast", {tensor_arg(other)}, {back}));
    if (dtype == DType::BF16 || dtype == DType::F16)
      expect_bits_of_cpu(bench, instruction("dc.accumulate", {tensor_arg(x), tensor_arg(other)}));
  }
  const int32_t copy = bench.tensor(DType::F32, {kCount});
  expect_bits_of_cpu(bench, instruction("dc.cast", {tensor_arg(x)}, {copy}));
  expect_bits_of_cpu(bench, instruction("dc.accumulate", {tensor_arg(x), tensor_arg(x)}));
}

TEST(CudaStepKernels, DropoutDrawsTheBitsOfTheCpu) {
  for (const int64_t n : {int64_t{1}, int64_t{1001}, int64_t{9000}}) {
    for (const double p : {0.0, 0.3, 1.0}) {
      for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
        KernelBench bench;
        const int32_t x = bench.filled(DType::F32, {n}, noise(n, 6));
        const int32_t narrow = dtype == DType::F32 ? x : bench.tensor(dtype, {n});
        if (dtype != DType::F32) {
          ASSERT_TRUE(run_native(bench, instruction("dc.cast", {tensor_arg(x)}, {narrow})).ok());
        }
        const int32_t rng = bench.filled<int64_t>(DType::I64, {4}, {12345678901, 7, 2, 3});
        const int32_t y = bench.tensor(dtype, {n}), mask = bench.tensor(DType::Bool, {n});
        const std::vector<plan::Arg> args = {tensor_arg(narrow), tensor_arg(rng), float_arg("p", p),
                                             int_arg("op_id", 11)};
        expect_bits_of_cpu(bench, instruction("dc.dropout", args, {y, mask}));
        expect_bits_of_cpu(bench, instruction("dc.dropout", args, {y}));
      }
    }
  }
}

TEST(CudaStepKernels, ScalarsOfTheStepHaveTheBitsOfTheCpu) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  for (const int64_t parameters : {int64_t{1}, int64_t{3}, int64_t{256}, int64_t{600}}) {
    for (const int64_t ranks : {int64_t{1}, int64_t{3}}) {
      for (const double odd : {1.0, kNone}) {
        KernelBench bench;
        const int64_t columns = parameters + base::kTableExtra;
        std::vector<double> table(static_cast<size_t>(ranks * columns));
        for (size_t i = 0; i < table.size(); ++i) table[i] = std::sqrt(static_cast<double>(i + 1));
        table[static_cast<size_t>(parameters / 2)] *= odd;
        std::vector<double> hyperparameters(base::kHyperGroups, 0);
        hyperparameters[base::kHyperClipNorm] = 1.5;
        hyperparameters[base::kHyperLossDivisor] = 6;
        const int32_t scalars = bench.tensor(DType::F64, {base::kScalarFinite + parameters});
        const int32_t all = bench.filled(DType::F64, {ranks, columns}, table);
        const int32_t hyper = bench.filled(DType::F64, {base::kHyperGroups}, hyperparameters);
        for (const int clip : {0, 1})
          expect_bits_of_cpu(
              bench, instruction("dc.clip_and_check", {tensor_arg(scalars), tensor_arg(all),
                                                       tensor_arg(hyper), int_arg("clip", clip)}));
        const int32_t row = bench.filled(
            DType::F64, {columns},
            std::vector<double>(table.begin(), table.begin() + static_cast<long>(columns)));
        const int32_t losses = bench.filled<double>(DType::F64, {2}, {1.5, 2.5 * odd});
        expect_bits_of_cpu(
            bench, instruction("dc.check_finite", {tensor_arg(scalars), tensor_arg(row),
                                                   tensor_arg(losses), int_arg("param", 0)}));
      }
    }
  }
}

TEST(CudaStepKernels, LossesAreAdded) {
  KernelBench bench;
  const int32_t sum = bench.filled<double>(DType::F64, {}, {0.25});
  const int32_t losses[] = {bench.filled<float>(DType::F32, {}, {0.1f}),
                            bench.filled<double>(DType::F64, {}, {0.2}),
                            bench.filled<uint16_t>(DType::BF16, {}, {0x3f81}),
                            bench.filled<uint16_t>(DType::F16, {}, {0x3c01})};
  for (const int32_t loss : losses)
    expect_bits_of_cpu(bench, instruction("dc.add_loss", {tensor_arg(sum), tensor_arg(loss)}));
}

// Of a gradient that is multiplied by `scale`.
int32_t hyperparameters(KernelBench& bench, double scale) {
  std::vector<double> values(base::kHyperGroups, 0);
  values[base::kHyperGradScale] = scale;
  return bench.filled(DType::F64, {base::kHyperGroups}, values);
}

// The order of terms that kernels/parameters.h names.
double ordered_square_sum(const float* g, int64_t n, float scale = 1) {
  constexpr size_t kThreads = 256, kBlocks = 512;
  std::vector<double> lanes(kThreads * kBlocks, 0);
  for (int64_t i = 0; i < n; ++i) {
    const double x = g[i] * scale;
    lanes[static_cast<size_t>(i / 8) % lanes.size()] += x * x;
  }
  const auto tree = [](double* values) {
    for (size_t half = kThreads / 2; half > 0; half /= 2)
      for (size_t t = 0; t < half; ++t) values[t] += values[t + half];
    return values[0];
  };
  std::vector<double> ends(kThreads, 0);
  for (size_t block = 0; block < kBlocks; ++block)
    ends[block % kThreads] += tree(lanes.data() + block * kThreads);
  return tree(ends.data());
}

TEST(CudaStepKernels, SquareSumsHaveTheirOrder) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    for (const int64_t n : {int64_t{0}, int64_t{5}, int64_t{300}, int64_t{2200000}}) {
      KernelBench bench;
      const int32_t wide = bench.filled(DType::F32, {n}, noise(n, 8));
      const int32_t id = bench.tensor(dtype, {n});
      ASSERT_TRUE(run_native(bench, instruction("dc.cast", {tensor_arg(wide)}, {id})).ok());
      ASSERT_TRUE(run_native(bench, instruction("dc.cast", {tensor_arg(id)}, {wide})).ok());
      const int32_t row = bench.tensor(DType::F64, {3 + base::kTableExtra});
      const int32_t hyper = hyperparameters(bench, 0.3);
      const plan::Instruction sum = instruction(
          "dc.square_sum", {tensor_arg(row), tensor_arg(id), tensor_arg(hyper), int_arg("param", 1),
                            int_arg("shard", n), int_arg("elements", n), int_arg("whole", 0)});
      const std::vector<std::byte> bytes = after_on_gpu(bench, sum);
      const auto cell = bench.data<std::byte>(row) - bench.used().data() + 8;
      double got = 0;
      std::memcpy(&got, bytes.data() + cell, sizeof got);
      EXPECT_EQ(got, ordered_square_sum(bench.data<float>(wide), n, 0.3f)) << n;
      ASSERT_TRUE(run_native(bench, sum).ok());
      const double cpu = bench.data<double>(row)[1];
      EXPECT_NEAR(got, cpu, 1e-12 * cpu);
    }
  }
}

// This rank adds up a part of its shard, but an infinity anywhere in the shard shows.
TEST(CudaStepKernels, SquareSumsSeeWhatIsNotFiniteBesideThem) {
  constexpr int64_t kShard = 1000, kPart = 320;
  KernelBench bench;
  bench.plan().mesh = {{"dp", 1}, {"tp", 2}};
  for (const int64_t odd : {int64_t{-1}, int64_t{10}, int64_t{999}}) {
    std::vector<float> g = noise(kShard, 9);
    if (odd >= 0) g[static_cast<size_t>(odd)] = std::numeric_limits<float>::infinity();
    const int32_t row = bench.tensor(DType::F64, {1 + base::kTableExtra});
    const int32_t id = bench.filled(DType::F32, {kShard}, g);
    plan::Arg axes;
    axes.name = "axes";
    axes.kind = plan::ArgKind::Ints;
    axes.ints = {0};
    const plan::Instruction sum =
        instruction("dc.square_sum",
                    {tensor_arg(row), tensor_arg(id), tensor_arg(hyperparameters(bench, 1)),
                     int_arg("param", 0), int_arg("shard", kShard), int_arg("elements", kShard),
                     int_arg("whole", 0), axes, int_arg("part", kPart), int_arg("decides", 1)});
    const std::vector<std::byte> bytes = after_on_gpu(bench, sum);
    double got = 0;
    std::memcpy(&got, bytes.data() + (bench.data<std::byte>(row) - bench.used().data()),
                sizeof got);
    const double part = ordered_square_sum(g.data(), kPart);
    EXPECT_EQ(got, odd < 0 ? part : std::numeric_limits<double>::infinity()) << odd;
  }
}

}  // namespace
}  // namespace dc::runtime
