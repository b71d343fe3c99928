// dropout: Philox's published vectors, statistics, and independence of how the work is cut.
#include <cmath>

#include "runtime/kernel/native/convert.h"
#include "runtime/kernel/native/philox.h"
#include "src/base/step_scalars.h"
#include "tests/runtime/kernel/kernel_bench.h"

namespace dc::runtime {
namespace {

using base::DType;
using Words = std::array<uint32_t, 4>;

TEST(Philox, MatchesThePublishedVectors) {
  EXPECT_EQ(kernel::native::philox_10(Words{0, 0, 0, 0}, 0),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(kernel::native::philox_10(Words{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                                      0xffffffffffffffff),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(kernel::native::philox_10(Words{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                                      0x299f31d0a4093822),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

struct State {
  uint64_t seed = 1, step = 1, micro_batch = 0, rank = 0;
};

std::vector<uint8_t> mask_of(int64_t n, double p, int64_t op, const State& state) {
  KernelBench bench;
  const int32_t x = bench.filled(DType::F32, {n}, std::vector<float>(n, 2.0f));
  const int32_t rng = bench.filled<uint64_t>(
      DType::I64, {4}, {state.seed, state.step, state.micro_batch, state.rank});
  const int32_t y = bench.tensor(DType::F32, {n}), mask = bench.tensor(DType::Bool, {n});
  const auto status = run_native(
      bench, instruction("dc.dropout",
                         {tensor_arg(x), tensor_arg(rng), float_arg("p", p), int_arg("op_id", op)},
                         {y, mask}));
  EXPECT_TRUE(status.ok()) << status.to_string();
  auto keep = bench.values<uint8_t>(mask);
  const auto result = bench.values<float>(y);
  for (int64_t i = 0; i < n; ++i) {
    const float expected = keep[i] ? 2.0f * static_cast<float>(1 / (1 - p)) : 0.0f;
    EXPECT_EQ(result[i], p < 1 ? expected : 0.0f);
  }
  return keep;
}

double mean(const std::vector<uint8_t>& keep) {
  double sum = 0;
  for (uint8_t k : keep) sum += k;
  return sum / static_cast<double>(keep.size());
}

TEST(Dropout, FollowsTheDocumentedCounter) {
  const State state{0x123456789abcdef0, 7, 3, 5};
  const auto keep = mask_of(150, 0.3, 11, state);
  for (uint32_t i = 0; i < 150; ++i) {
    const Words words = kernel::native::philox_10(Words{i / 4, 11, 7, 3u << 16 | 5u}, state.seed);
    const double u = (words[i % 4] >> 8) * 0x1p-24;
    EXPECT_EQ(keep[i], u >= 0.3) << i;
  }
}

TEST(Dropout, KeepsTheRightShare) {
  const int64_t n = 1 << 20;
  for (double p : {0.1, 0.5, 0.9}) {
    const double sigma = std::sqrt(p * (1 - p) / n);
    EXPECT_NEAR(mean(mask_of(n, p, 0, State{})), 1 - p, 4 * sigma) << p;
  }
  EXPECT_EQ(mean(mask_of(100, 0, 0, State{})), 1);
  EXPECT_EQ(mean(mask_of(100, 1, 0, State{})), 0);
}

TEST(Dropout, VarianceOverBlocksIsBinomial) {
  const int64_t n = 1 << 20, block = 1024;
  const double p = 0.2;
  const auto keep = mask_of(n, p, 3, State{});
  double square = 0;
  for (int64_t start = 0; start < n; start += block) {
    double sum = 0;
    for (int64_t i = start; i < start + block; ++i) sum += keep[i];
    square += (sum - block * (1 - p)) * (sum - block * (1 - p));
  }
  const double blocks = static_cast<double>(n) / block, variance = block * p * (1 - p);
  EXPECT_NEAR(square / blocks / variance, 1, 4 * std::sqrt(2 / blocks));
}

TEST(Dropout, EveryPartOfTheCounterGivesAnotherMask) {
  const int64_t n = 1 << 18;
  const std::vector<uint8_t> base = mask_of(n, 0.5, 0, State{});
  EXPECT_EQ(base, mask_of(n, 0.5, 0, State{}));
  const std::vector<std::vector<uint8_t>> others = {
      mask_of(n, 0.5, 1, State{}), mask_of(n, 0.5, 0, State{2, 1, 0, 0}),
      mask_of(n, 0.5, 0, State{1, 2, 0, 0}), mask_of(n, 0.5, 0, State{1, 1, 1, 0}),
      mask_of(n, 0.5, 0, State{1, 1, 0, 1})};
  for (const auto& other : others) {
    double equal = 0;
    for (int64_t i = 0; i < n; ++i) equal += base[i] == other[i];
    EXPECT_NEAR(equal / n, 0.5, 4 * 0.5 / std::sqrt(n));
  }
}

TEST(Dropout, NeighboursAreUncorrelated) {
  const int64_t n = 1 << 20;
  const auto keep = mask_of(n, 0.5, 0, State{});
  for (int64_t lag : {1, 2, 3, 4, 64}) {
    double equal = 0;
    for (int64_t i = 0; i + lag < n; ++i) equal += keep[i] == keep[i + lag];
    EXPECT_NEAR(equal / (n - lag), 0.5, 4 * 0.5 / std::sqrt(n)) << lag;
  }
}

TEST(Dropout, ALongerTensorBeginsWithTheSameMask) {
  const auto longest = mask_of(301, 0.4, 2, State{});
  for (int64_t n : {0, 1, 3, 63, 64, 65, 200}) {
    EXPECT_EQ(mask_of(n, 0.4, 2, State{}),
              std::vector<uint8_t>(longest.begin(), longest.begin() + n));
  }
}

TEST(Dropout, WorksInBf16AndWithoutAMask) {
  KernelBench bench;
  const int32_t x = bench.filled(
      DType::BF16, {100}, std::vector<uint16_t>(100, kernel::native::narrow_bf16(3.0f).bits));
  const int32_t rng = bench.filled<uint64_t>(DType::I64, {4}, {1, 1, 0, 0});
  const int32_t y = bench.tensor(DType::BF16, {100});
  ASSERT_TRUE(run_native(bench, instruction("dc.dropout",
                                            {tensor_arg(x), tensor_arg(rng), float_arg("p", 0.5),
                                             int_arg("op_id", 0)},
                                            {y, -1}))
                  .ok());
  const auto keep = mask_of(100, 0.5, 0, State{});
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(kernel::native::widen(kernel::native::BF16{bench.values<uint16_t>(y)[i]}),
              keep[i] ? 6.0f : 0.0f);
  }
}

}  // namespace
}  // namespace dc::runtime
