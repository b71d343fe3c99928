#include "runtime/kernel/elements.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace dc::runtime {
namespace {

using base::DType;

uint16_t stored(DType dtype, double value) {
  uint16_t bits = 0;
  kernel::store_real(dtype, &bits, value);
  return bits;
}

TEST(Elements, RoundsToNearestEvenOnce) {
  EXPECT_EQ(stored(DType::BF16, 1.0), 0x3F80);
  EXPECT_EQ(stored(DType::BF16, 1.0 + 0x1p-8), 0x3F80);            // tie to even
  EXPECT_EQ(stored(DType::BF16, 1.0 + 0x3p-8), 0x3F82);            // tie to even, upwards
  EXPECT_EQ(stored(DType::BF16, 1.0 + 0x1p-8 + 0x1p-40), 0x3F81);  // just above: no double rounding
  EXPECT_EQ(stored(DType::BF16, -1.0 - 0x1p-8 - 0x1p-40), 0xBF81);
  EXPECT_EQ(stored(DType::F16, 1.0 + 0x1p-11), 0x3C00);
  EXPECT_EQ(stored(DType::F16, 1.0 + 0x1p-11 + 0x1p-40), 0x3C01);
  EXPECT_EQ(stored(DType::F16, 65504.0), 0x7BFF);
  EXPECT_EQ(stored(DType::F16, 65520.0), 0x7C00);
  EXPECT_EQ(stored(DType::F16, 0x1p-24), 0x0001);
  EXPECT_EQ(stored(DType::F16, 0x1.fffp-15), 0x0400);  // rounds up into the normal numbers
  EXPECT_TRUE(std::isnan(kernel::load_real(DType::F16, "\xff\xff")));
  EXPECT_TRUE(std::isnan(kernel::load_real(DType::BF16, "\xff\xff")));
}

TEST(Elements, EveryHalfSurvivesTheRoundTrip) {
  for (const DType dtype : {DType::F16, DType::BF16}) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const auto half = static_cast<uint16_t>(bits);
      const double value = kernel::load_real(dtype, &half);
      if (std::isnan(value)) continue;
      ASSERT_EQ(stored(dtype, value), half) << bits;
    }
  }
}

TEST(Elements, ConvertsThroughANarrowerType) {
  const float in[2] = {1.0f + 0x1p-9f, -3.0f};
  float out[2];
  kernel::convert(DType::F32, in, DType::BF16, DType::F32, out, 2);
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], -3.0f);
  kernel::convert(DType::F32, in, DType::F32, DType::F32, out, 2);
  EXPECT_EQ(out[0], in[0]);
  const int64_t big[1] = {(int64_t{1} << 60) + 1};
  int64_t same[1];
  kernel::convert(DType::I64, big, DType::I64, DType::I64, same, 1);
  EXPECT_EQ(same[0], big[0]);
}

TEST(Elements, WalksStridedTensorsInLogicalOrder) {
  const int64_t sizes[] = {2, 3}, strides[] = {1, 2}, dense[] = {3, 1};
  const kernel::ElementWalk transposed(sizes, strides), plain(sizes, dense);
  EXPECT_FALSE(transposed.contiguous());
  EXPECT_TRUE(plain.contiguous());
  const int64_t expected[] = {0, 2, 4, 1, 3, 5};
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(transposed.offset(i), expected[i]);
    EXPECT_EQ(plain.offset(i), i);
  }
}

}  // namespace
}  // namespace dc::runtime
