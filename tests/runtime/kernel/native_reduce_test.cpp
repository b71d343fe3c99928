// add_loss, square_sum, check_finite, clip_and_check.
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "src/base/step_scalars.h"
#include "tests/runtime/kernel/kernel_bench.h"

namespace dc::runtime {
namespace {

using base::DType;

std::vector<float> noise(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

// Of a gradient that is multiplied by `scale`.
int32_t hyperparameters(KernelBench& bench, double scale = 1) {
  std::vector<double> values(base::kHyperGroups, 0);
  values[base::kHyperGradScale] = scale;
  return bench.filled(DType::F64, {base::kHyperGroups}, values);
}

// The cell that square_sum writes into a rank's row.
double square_sum_of(int rank, int64_t shard, int64_t elements, bool whole,
                     const std::vector<float>& g) {
  KernelBench bench(rank);
  const int32_t row = bench.filled<double>(DType::F64, {4}, std::vector<double>(4, -1));
  const int32_t gradient = bench.filled(DType::F32, {static_cast<int64_t>(g.size())}, g);
  const auto step = instruction(
      "dc.square_sum", {tensor_arg(row), tensor_arg(gradient), tensor_arg(hyperparameters(bench)),
                        int_arg("param", 1), int_arg("shard", shard), int_arg("elements", elements),
                        int_arg("whole", whole)});
  const auto status = run_native(bench, step);
  EXPECT_TRUE(status.ok()) << status.to_string();
  const auto cells = bench.values<double>(row);
  for (int64_t i = 0; i < 4; ++i) {
    if (i != 1) {
      EXPECT_EQ(cells[i], -1) << "cell " << i << " is not this parameter's";
    }
  }
  return cells[1];
}

// Three hosts of two ranks, which hold the same two shards of 96; of the last, 54 are not padding.
constexpr int kHosts = 3, kPerHost = 2;
constexpr int64_t kElements = 150, kShard = 96, kPart = 32;

// The cell that a rank writes of its part of its shard. It holds the shard or the whole value.
double square_sum_of_part(int rank, const std::vector<float>& g, bool whole, bool decides) {
  std::vector<float> padded = g;
  padded.resize(kShard * kPerHost, std::numeric_limits<float>::quiet_NaN());
  KernelBench bench(rank);
  bench.plan().mesh = {{"host", kHosts}, {"dp", kPerHost}};
  const int64_t begin = whole ? 0 : rank % kPerHost * kShard;
  const std::vector<float> held(padded.begin() + begin,
                                padded.begin() + (whole ? kElements : begin + kShard));
  const int32_t row = bench.filled<double>(DType::F64, {3}, std::vector<double>(3, -1));
  const int32_t gradient = bench.filled(DType::F32, {static_cast<int64_t>(held.size())}, held);
  plan::Arg axes;
  axes.name = "axes";
  axes.kind = plan::ArgKind::Ints;
  axes.ints = {1};
  plan::Instruction step =
      instruction("dc.square_sum",
                  {tensor_arg(row), tensor_arg(gradient), tensor_arg(hyperparameters(bench)),
                   int_arg("param", 0), int_arg("shard", kShard), int_arg("elements", kElements),
                   int_arg("whole", whole), axes, int_arg("part", kPart)});
  if (decides) step.args.push_back(int_arg("decides", 1));
  const auto status = run_native(bench, step);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return bench.values<double>(row)[0];
}

// Each rank counts its part of its shard, whether it holds the shard or the whole value, and all
// parts together are the value once.
TEST(SquareSum, ReplicasOfAShardCountItOnce) {
  const std::vector<float> g = noise(kElements, 7);
  double total = 0, expected = 0;
  for (float x : g) expected += static_cast<double>(x) * x;
  for (int rank = 0; rank < kHosts * kPerHost; ++rank) {
    const double sum = square_sum_of_part(rank, g, false, false);
    for (const bool whole : {false, true}) {
      EXPECT_EQ(sum, square_sum_of_part(rank, g, whole, false)) << "rank " << rank;
      EXPECT_EQ(sum, square_sum_of_part(rank, g, whole, true)) << "rank " << rank;
    }
    total += sum;
  }
  EXPECT_NEAR(total, expected, 1e-12 * expected);
}

// Wherever in a shard a number is not finite, all ranks that hold the shard see it in their own
// cells, and no others do.
TEST(SquareSum, ReplicasOfAShardDecideAlike) {
  for (const float broken : {INFINITY, -INFINITY, NAN}) {
    for (int64_t at = 0; at < kElements; ++at) {
      std::vector<float> g = noise(kElements, 7);
      g[static_cast<size_t>(at)] = broken;
      for (int rank = 0; rank < kHosts * kPerHost; ++rank) {
        const bool whole = at % 2 == 0, holds = at / kShard == rank % kPerHost;
        const double sum = square_sum_of_part(rank, g, whole, true);
        ASSERT_EQ(std::isfinite(sum), !holds) << "rank " << rank << ", element " << at;
        ASSERT_EQ(std::isinf(sum), holds && std::isinf(broken));
      }
    }
  }
}

TEST(SquareSum, AWholeGradientAndItsShardsGiveTheSameBits) {
  const int world = 3;
  const int64_t elements = 205, shard = 96;  // ranges of 96, 96 and 13
  std::vector<float> g = noise(elements, 1);
  double total = 0, expected = 0;
  for (float x : g) expected += static_cast<double>(x) * x;
  std::vector<float> padded = g;
  padded.resize(shard * world,
                std::numeric_limits<float>::quiet_NaN());  // padding must not be read
  for (int rank = 0; rank < world; ++rank) {
    const std::vector<float> own(padded.begin() + rank * shard,
                                 padded.begin() + (rank + 1) * shard);
    const double from_shard = square_sum_of(rank, shard, elements, false, own);
    EXPECT_EQ(from_shard, square_sum_of(rank, shard, elements, true, g));
    total += from_shard;
  }
  EXPECT_NEAR(total, expected, 1e-12 * expected);
}

TEST(SquareSum, FollowsTheDocumentedOrder) {
  const std::vector<float> g = noise(1003, 2);
  double lanes[16] = {}, expected = 0;
  for (size_t i = 0; i < g.size(); ++i) lanes[i % 16] += static_cast<double>(g[i]) * g[i];
  for (double lane : lanes) expected += lane;
  EXPECT_EQ(square_sum_of(0, 1024, 1003, true, g), expected);
}

// Whatever the type and however many blocks it is read in: that of an f32 gradient that was cast
// and scaled before.
TEST(SquareSum, IsOfTheScaledGradient) {
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16, DType::F64}) {
    for (const double scale : {1.0, 1.0 / 3}) {
      for (const int64_t n : {31, 4096, 9003}) {
        KernelBench bench;
        const int32_t wide = bench.filled(DType::F32, {n}, noise(n, 5));
        const int32_t g = bench.tensor(dtype, {n}), back = bench.tensor(DType::F32, {n});
        ASSERT_TRUE(run_native(bench, instruction("dc.cast", {tensor_arg(wide)}, {g})).ok());
        ASSERT_TRUE(run_native(bench, instruction("dc.cast", {tensor_arg(g)}, {back})).ok());
        std::vector<float> scaled = bench.values<float>(back);
        for (float& each : scaled) each = each * static_cast<float>(scale);
        const int32_t row = bench.tensor(DType::F64, {4});
        ASSERT_TRUE(run_native(bench, instruction("dc.square_sum",
                                                  {tensor_arg(row), tensor_arg(g),
                                                   tensor_arg(hyperparameters(bench, scale)),
                                                   int_arg("param", 1), int_arg("shard", n),
                                                   int_arg("elements", n), int_arg("whole", 1)}))
                        .ok());
        EXPECT_EQ(bench.values<double>(row)[1], square_sum_of(0, n, n, true, scaled));
      }
    }
  }
}

TEST(SquareSum, AnEmptyRangeGivesZero) {
  EXPECT_EQ(square_sum_of(2, 32, 40, true, noise(40, 3)), 0);
  EXPECT_EQ(square_sum_of(2, 32, 40, false, noise(32, 3)), 0);
}

TEST(SquareSum, RefusesAGradientThatIsTooShort) {
  KernelBench bench;
  const int32_t table = bench.tensor(DType::F64, {1, 3}), g = bench.tensor(DType::F32, {31});
  const auto status = run_native(
      bench, instruction("dc.square_sum",
                         {tensor_arg(table), tensor_arg(g), tensor_arg(hyperparameters(bench)),
                          int_arg("param", 0), int_arg("shard", 64), int_arg("elements", 40),
                          int_arg("whole", 0)}));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.kind(), base::ErrorKind::Unsupported);
}

TEST(SquareSum, RefusesTheTableInPlaceOfARow) {
  KernelBench bench(1);
  const int32_t table = bench.tensor(DType::F64, {2, 3}), g = bench.tensor(DType::F32, {64});
  const auto status = run_native(
      bench, instruction("dc.square_sum",
                         {tensor_arg(table), tensor_arg(g), tensor_arg(hyperparameters(bench)),
                          int_arg("param", 0), int_arg("shard", 64), int_arg("elements", 128),
                          int_arg("whole", 0)}));
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.sentence().find("row"), std::string::npos);
}

TEST(AddLoss, AddsInDouble) {
  KernelBench bench;
  const int32_t sum = bench.filled<double>(DType::F64, {1}, {1e9});
  const int32_t loss = bench.filled<float>(DType::F32, {}, {0.25f});
  const auto step = instruction("dc.add_loss", {tensor_arg(sum), tensor_arg(loss)});
  ASSERT_TRUE(run_native(bench, step).ok());
  ASSERT_TRUE(run_native(bench, step).ok());
  EXPECT_EQ(bench.values<double>(sum)[0], 1e9 + 0.5);
}

// What check_finite says of parameter 1 of 2.
double check_finite(double squares, const std::vector<double>& losses) {
  KernelBench bench;
  const int32_t scalars = bench.filled<double>(DType::F64, {base::kScalarFinite + 2},
                                               std::vector<double>(base::kScalarFinite + 2, -1));
  const int32_t row = bench.filled<double>(DType::F64, {4}, {-1, squares, -1, -1});
  const int32_t l = bench.filled(DType::F64, {static_cast<int64_t>(losses.size())}, losses);
  const auto status =
      run_native(bench, instruction("dc.check_finite", {tensor_arg(scalars), tensor_arg(row),
                                                        tensor_arg(l), int_arg("param", 1)}));
  EXPECT_TRUE(status.ok()) << status.to_string();
  const std::vector<double> s = bench.values<double>(scalars);
  EXPECT_EQ(s[base::kScalarFinite], -1) << "another parameter's";
  return s[base::kScalarFinite + 1];
}

TEST(CheckFinite, TakesAFiniteRangeAndFiniteLosses) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(check_finite(4, {1, 2}), 1);
  EXPECT_EQ(check_finite(inf, {1, 2}), 0);
  EXPECT_EQ(check_finite(4, {1, nan}), 0);
  EXPECT_EQ(check_finite(4, {inf, 2}), 0);
}

std::vector<double> clip_and_check(const std::vector<double>& table, int64_t world,
                                   int64_t parameters, bool clip, double clip_norm,
                                   double divisor) {
  KernelBench bench;
  std::vector<double> hyperparameters(base::kHyperGroups + base::kHyperPerGroup, 0);
  hyperparameters[base::kHyperClipNorm] = clip_norm;
  hyperparameters[base::kHyperLossDivisor] = divisor;
  const int32_t s =
      bench.filled(DType::F64, {static_cast<int64_t>(hyperparameters.size())}, hyperparameters);
  const int32_t t = bench.filled(DType::F64, {world, parameters + 2}, table);
  const int32_t scalars = bench.tensor(DType::F64, {base::kScalarFinite + parameters});
  const auto status =
      run_native(bench, instruction("dc.clip_and_check", {tensor_arg(scalars), tensor_arg(t),
                                                          tensor_arg(s), int_arg("clip", clip)}));
  EXPECT_TRUE(status.ok()) << status.to_string();
  return bench.values<double>(scalars);
}

TEST(ClipAndCheck, NormLossClipAndStop) {
  // Two ranks, two parameters; columns: squares, squares, loss sum, stop.
  const auto s = clip_and_check({4, 1, 6, 0, 3, 1, 2, 1}, 2, 2, true, 1.5, 4);
  EXPECT_EQ(s[base::kScalarNorm], 3);
  EXPECT_EQ(s[base::kScalarClip], 1.5 / (3 + 1e-6));
  EXPECT_EQ(s[base::kScalarLoss], 2);
  EXPECT_EQ(s[base::kScalarAllFinite], 1);
  EXPECT_EQ(s[base::kScalarStop], 1);
  EXPECT_EQ(s[base::kScalarFinite], 1);
  EXPECT_EQ(s[base::kScalarFinite + 1], 1);
}

TEST(ClipAndCheck, SmallNormsAndPlansWithoutClippingKeepTheGradient) {
  EXPECT_EQ(clip_and_check({4, 0, 0}, 1, 1, true, 10, 1)[base::kScalarClip], 1);
  EXPECT_EQ(clip_and_check({400, 0, 0}, 1, 1, false, 1, 1)[base::kScalarClip], 1);
}

TEST(ClipAndCheck, ANonFiniteGradientStopsAllUpdatesOnlyWithClipping) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto clipped = clip_and_check({inf, 1, 1, 0}, 1, 2, true, 1, 1);
  EXPECT_EQ(clipped[base::kScalarAllFinite], 0);
  EXPECT_EQ(clipped[base::kScalarFinite], 0);
  EXPECT_EQ(clipped[base::kScalarFinite + 1], 0);
  const auto free = clip_and_check({inf, 1, 1, 0}, 1, 2, false, 1, 1);
  EXPECT_EQ(free[base::kScalarAllFinite], 0);
  EXPECT_EQ(free[base::kScalarFinite], 0);
  EXPECT_EQ(free[base::kScalarFinite + 1], 1);
}

TEST(ClipAndCheck, ANonFiniteLossStopsEverything) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (bool clip : {false, true}) {
    const auto s = clip_and_check({1, 1, nan, 0}, 1, 2, clip, 1, 1);
    EXPECT_EQ(s[base::kScalarAllFinite], 0);
    EXPECT_EQ(s[base::kScalarFinite], 0);
    EXPECT_EQ(s[base::kScalarFinite + 1], 0);
  }
}

// Many short rows that lie one behind the other are handled at once, those with gaps one by one.
TEST(NativeSoftmaxGradient, OfShortRowsHasTheBitsOfRowsWithGaps) {
  for (const int64_t length : {1, 2, 3, 4, 7, 8, 15, 16, 17}) {
    for (const int64_t rows : {1, 2, 33, 600}) {
      KernelBench bench;
      const int32_t g = bench.tensor(DType::F32, {rows, length}),
                    y = bench.tensor(DType::F32, {rows, length}),
                    gaps = bench.tensor(DType::F32, {rows, length}, {length + 1, 1}),
                    dense = bench.tensor(DType::F32, {rows, length}),
                    apart = bench.tensor(DType::F32, {rows, length}, {length + 2, 1});
      std::mt19937 random(static_cast<uint32_t>(rows * 20 + length));
      for (int64_t i = 0; i < rows * length; ++i) {
        const auto draw = static_cast<float>(static_cast<int64_t>(random() % 2001) - 1000) / 300;
        bench.data<float>(g)[i] = i % 7 == 0 ? -0.0f : draw;
        bench.data<float>(y)[i] = static_cast<float>(random() % 1000) / 999;
        bench.data<float>(gaps)[i / length * (length + 1) + i % length] = bench.data<float>(g)[i];
      }
      const auto run = [&](int32_t gradient, int32_t to) {
        return run_native(bench,
                          instruction("aten._softmax_backward_data.default",
                                      {tensor_arg(gradient, "grad_output"), tensor_arg(y, "output"),
                                       int_arg("dim", 1), int_arg("input_dtype", 7)},
                                      {to}));
      };
      ASSERT_TRUE(run(g, dense).ok());
      ASSERT_TRUE(run(gaps, apart).ok());
      for (int64_t i = 0; i < rows * length; ++i) {
        const float one = bench.data<float>(dense)[i],
                    other = bench.data<float>(apart)[i / length * (length + 2) + i % length];
        ASSERT_EQ(std::bit_cast<uint32_t>(one), std::bit_cast<uint32_t>(other))
            << rows << " x " << length << ", " << i;
      }
    }
  }
}

}  // namespace
}  // namespace dc::runtime
