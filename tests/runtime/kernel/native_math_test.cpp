// The elementary functions of native kernels against libm in f64, over a comb of all floats.
#include "runtime/kernel/native/math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace dc::runtime::kernel::native {
namespace {

// Distance of neighbouring floats at x.
double ulp(double x) {
  const double magnitude = std::max(std::fabs(x), 0x1p-126);
  return std::ldexp(1.0, std::ilogb(magnitude) - 23);
}

struct Worst {
  double ulps = 0;
  float at = 0;
};

// Of all finite floats with |x| <= limit, every 1009th.
template <typename F, typename G>
Worst worst_of(F function, G exact, float limit) {
  Worst worst;
  for (uint64_t bits = 0; bits <= 0xffffffffu; bits += 1009) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (!(std::fabs(x) <= limit)) continue;
    const double want = exact(static_cast<double>(x));
    const float got = function(x);
    if (std::isnan(want) && std::isnan(got)) continue;
    if (std::fabs(want) > std::numeric_limits<float>::max()) {
      EXPECT_EQ(got, static_cast<float>(want)) << x;
      continue;
    }
    const double ulps = std::fabs(got - want) / ulp(want);
    if (!(ulps <= worst.ulps)) worst = {ulps, x};
  }
  return worst;
}

constexpr float kAll = std::numeric_limits<float>::max();

void expect_within(const Worst& worst, double ulps) {
  EXPECT_LE(worst.ulps, ulps) << "at " << worst.at;
}

TEST(NativeMath, IsAsCloseAsItSays) {
  const auto of = [](auto f) { return [f](auto x) { return f(x); }; };
  expect_within(worst_of(of([](float x) { return math::exp(x); }),
                         of([](double x) { return std::exp(x); }), kAll),
                2);
  expect_within(worst_of(of([](float x) { return math::log(x); }),
                         of([](double x) { return std::log(x); }), kAll),
                2);
  expect_within(worst_of(of([](float x) { return math::log1p(x); }),
                         of([](double x) { return std::log1p(x); }), kAll),
                4);
  expect_within(worst_of(of([](float x) { return math::tanh(x); }),
                         of([](double x) { return std::tanh(x); }), kAll),
                3);
  expect_within(worst_of(of([](float x) { return math::erf(x); }),
                         of([](double x) { return std::erf(x); }), kAll),
                3);
  expect_within(worst_of(of([](float x) { return math::sin(x); }),
                         of([](double x) { return std::sin(x); }), kAll),
                1);
  expect_within(worst_of(of([](float x) { return math::cos(x); }),
                         of([](double x) { return std::cos(x); }), kAll),
                1);
}

// Where GPUs leave out what most floats do not need.
TEST(NativeMath, HasTheSameBitsInRange) {
  int compared = 0;
  for (uint64_t bits = 0; bits <= 0xffffffffu; bits += 1009) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (std::fabs(x) <= 87.0f) {
      ASSERT_EQ(scalar::math::exp_in_range(x), math::exp(x)) << x;
      ++compared;
    }
    if (scalar::math::is_moderate(x)) {
      ASSERT_EQ(scalar::math::sigmoid_of_moderate(x), math::sigmoid(x)) << x;
    }
  }
  EXPECT_GT(compared, 2'000'000);
  for (const float x : {87.0f, -87.0f}) EXPECT_EQ(scalar::math::exp_in_range(x), math::exp(x));
  EXPECT_FALSE(scalar::math::is_moderate(std::numeric_limits<float>::quiet_NaN()));
  EXPECT_FALSE(scalar::math::is_moderate(-88.0f));
}

TEST(NativeMath, KeepsInfinityAndNan) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(math::exp(-kInfinity), 0);
  EXPECT_EQ(math::exp(kInfinity), kInfinity);
  EXPECT_EQ(math::log(kInfinity), kInfinity);
  EXPECT_EQ(math::log(0.0f), -kInfinity);
  EXPECT_EQ(math::log1p(kInfinity), kInfinity);
  EXPECT_EQ(math::log1p(-1.0f), -kInfinity);
  EXPECT_EQ(math::tanh(kInfinity), 1);
  EXPECT_EQ(math::erf(-kInfinity), -1);
  EXPECT_EQ(math::sigmoid(-kInfinity), 0);
  EXPECT_EQ(math::sigmoid(-100.0f), 0);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float result :
       {math::exp(nan), math::log(nan), math::log(-1.0f), math::log1p(nan), math::log1p(-2.0f),
        math::tanh(nan), math::erf(nan), math::sin(nan), math::cos(kInfinity)}) {
    EXPECT_TRUE(std::isnan(result));
  }
}

}  // namespace
}  // namespace dc::runtime::kernel::native
