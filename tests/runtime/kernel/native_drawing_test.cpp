// Drawn numbers: the formula in f64 by the host's library, the distributions, and independence of
// how the work is cut.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/kernel/drawing.h"
#include "runtime/kernel/elements.h"
#include "runtime/kernel/native/philox.h"

namespace dc::runtime {
namespace {

using base::DType;
using kernel::Drawing, kernel::DrawKind;

constexpr uint64_t kKey = 0x123456789abcdef0;

std::vector<float> drawn(const Drawing& what, int64_t first, int64_t count) {
  std::vector<float> all(static_cast<size_t>(count));
  kernel::draw_elements(what, first, count, DType::F32, DType::F32, all.data());
  return all;
}

// As the header says it, in f64.
double expected_normal(int64_t element) {
  const auto counter = static_cast<uint64_t>(element / 128 * 32 + element % 32);
  const auto words = kernel::native::philox_10(
      {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0}, kKey);
  const int64_t word = element / 32 % 4, pair = word / 2 * 2;
  const double length = (words[pair] + 0.5) / 0x1p32, turn = words[pair + 1] / 0x1p32;
  const double radius = std::sqrt(-2 * std::log(length));
  const double angle = 2 * std::numbers::pi * turn;
  return radius * (word % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

TEST(Drawing, FollowsTheDocumentedFormula) {
  const Drawing what{.key = kKey, .base = 0, .scale = 1, .kind = DrawKind::Normal};
  for (const int64_t first : {int64_t{0}, int64_t{1000}, (int64_t{1} << 36) - 500}) {
    const auto numbers = drawn(what, first, 100000);
    for (int64_t i = 0; i < 100000; ++i) {
      const double expected = expected_normal(first + i);
      // The length of 32 bits is rounded to 24, which moves a radius below 0.01.
      ASSERT_NEAR(numbers[i], expected, std::fabs(expected) < 0.01 ? 4e-4 : 3e-6)
          << "element " << first + i;
    }
  }
}

// The largest distance between the distribution of the numbers and `probability` is below that
// which one of a thousand samples exceeds (Kolmogorov).
template <typename Probability>
void expect_distribution(std::vector<float> numbers, Probability probability) {
  std::ranges::sort(numbers);
  const auto count = static_cast<double>(numbers.size());
  double distance = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const double p = probability(static_cast<double>(numbers[i]));
    distance = std::max({distance, std::fabs(p - static_cast<double>(i) / count),
                         std::fabs(p - static_cast<double>(i + 1) / count)});
  }
  EXPECT_LT(distance * std::sqrt(count), 1.95);
}

TEST(Drawing, NumbersHaveTheirDistribution) {
  for (const uint64_t key : {uint64_t{1}, uint64_t{2}, kKey}) {
    expect_distribution(
        drawn({.key = key, .base = 0.5F, .scale = 0.02F, .kind = DrawKind::Normal}, 0, 1 << 18),
        [](double x) { return 0.5 * std::erfc((0.5 - x) / 0.02 / std::numbers::sqrt2); });
    const auto uniform =
        drawn({.key = key, .base = -0.25F, .scale = 0.5F, .kind = DrawKind::Uniform}, 0, 1 << 18);
    expect_distribution(uniform, [](double x) { return (x + 0.25) / 0.5; });
    EXPECT_GE(*std::ranges::min_element(uniform), -0.25F);
    EXPECT_LT(*std::ranges::max_element(uniform), 0.25F);
  }
}

// Moments show tails and the two halves of a pair, which a distribution hides.
TEST(Drawing, NormalNumbersHaveTheirMomentsAndNoCorrelation) {
  const int64_t count = 1 << 22;
  const auto numbers = drawn({.key = kKey, .scale = 1, .kind = DrawKind::Normal}, 0, count);
  double sums[5] = {}, products[6] = {};
  constexpr int64_t kDistances[6] = {1, 2, 32, 64, 96, 128};
  for (int64_t i = 0; i < count; ++i) {
    double power = 1;
    for (double& sum : sums) sum += power *= numbers[i];
    for (size_t d = 0; d < 6; ++d) {
      if (i + kDistances[d] < count)
        products[d] += static_cast<double>(numbers[i]) * numbers[i + kDistances[d]];
    }
  }
  constexpr double kMoments[5] = {0, 1, 0, 3, 0}, kVariances[5] = {1, 2, 15, 96, 945};
  for (size_t m = 0; m < 5; ++m)
    EXPECT_NEAR(sums[m] / count, kMoments[m], 4 * std::sqrt(kVariances[m] / count)) << m;
  for (const double product : products) EXPECT_NEAR(product / count, 0, 4 / std::sqrt(count));
}

TEST(Drawing, AreEqualHoweverTheyAreCut) {
  Drawing what{.key = kKey, .base = 1, .scale = 2, .kind = DrawKind::Normal};
  for (const DrawKind kind : {DrawKind::Normal, DrawKind::Uniform, DrawKind::Constant}) {
    what.kind = kind;
    for (const int64_t zeros : {0, 700}) {
      what.zeros_begin = zeros;
      what.zeros_end = zeros == 0 ? 0 : 1531;
      const auto whole = drawn(what, 0, 5000);
      if (zeros != 0) {
        EXPECT_NE(whole[699], 0);
        for (int64_t i = 700; i < 1531; ++i) ASSERT_EQ(whole[i], 0);
        EXPECT_NE(whole[1531], 0);
      }
      for (const int64_t first : {0, 1, 31, 127, 128, 700, 1530, 4999}) {
        for (const int64_t count : {1, 2, 129, 513, 3000}) {
          const int64_t n = std::min(count, 5000 - first);
          EXPECT_EQ(drawn(what, first, n),
                    std::vector<float>(whole.begin() + first, whole.begin() + first + n));
        }
      }
    }
  }
}

TEST(Drawing, NumbersAreRoundedToBothTypes) {
  const Drawing what{.key = kKey, .scale = 1, .kind = DrawKind::Normal};
  const auto exact = drawn(what, 5, 1000);
  for (const DType through : {DType::F32, DType::BF16, DType::F16, DType::F64}) {
    for (const DType to : {DType::F32, DType::BF16, DType::F16, DType::F64, DType::I64}) {
      const auto bytes = static_cast<size_t>(base::byte_size(to));
      std::vector<std::byte> got(1000 * bytes), expected(1000 * bytes);
      kernel::draw_elements(what, 5, 1000, through, to, got.data());
      kernel::convert(DType::F32, exact.data(), through, to, expected.data(), 1000);
      EXPECT_EQ(got, expected) << base::name(through) << " " << base::name(to);
    }
  }
}

}  // namespace
}  // namespace dc::runtime
