// cast, copy, zero, accumulate, scale, and the refusals that all native kernels share.
#include <cmath>
#include <limits>
#include <random>

#include "runtime/kernel/native/convert.h"
#include "src/base/step_scalars.h"
#include "tests/runtime/kernel/kernel_bench.h"

namespace dc::runtime {
namespace {

using base::DType;
using kernel::native::BF16;
using kernel::native::F16;

// The nearest 16-bit float by search over all of them: slow and obviously right. Ties go to the
// even pattern.
template <typename Half>
uint16_t nearest(double value) {
  uint16_t best = 0;
  double best_distance = std::numeric_limits<double>::infinity();
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double candidate = kernel::native::widen(Half{static_cast<uint16_t>(bits)});
    if (!std::isfinite(candidate) || std::signbit(candidate) != std::signbit(value)) continue;
    const double distance = std::fabs(candidate - value);
    if (distance < best_distance || (distance == best_distance && bits % 2 == 0)) {
      best = static_cast<uint16_t>(bits);
      best_distance = distance;
    }
  }
  return best;
}

// widen() itself against the definition of the format.
double half_by_definition(uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                    : std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  return bits & 0x8000 ? -magnitude : magnitude;
}

TEST(Convert, WidensEveryHalfByDefinition) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    if ((half & 0x7c00) != 0x7c00) {
      ASSERT_EQ(kernel::native::widen(F16{half}), half_by_definition(half, 5, 10)) << bits;
    }
    if ((half & 0x7f80) != 0x7f80) {
      ASSERT_EQ(kernel::native::widen(BF16{half}), half_by_definition(half, 8, 7)) << bits;
    }
  }
  EXPECT_TRUE(std::isinf(kernel::native::widen(F16{0x7c00})));
  EXPECT_TRUE(std::isnan(kernel::native::widen(F16{0x7e00})));
}

TEST(Convert, NarrowsEveryHalfBackToItself) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float f16 = kernel::native::widen(F16{half}), bf16 = kernel::native::widen(BF16{half});
    if (!std::isnan(f16)) {
      ASSERT_EQ(kernel::native::narrow_f16(f16).bits, half);
    } else {
      ASSERT_TRUE(std::isnan(kernel::native::widen(kernel::native::narrow_f16(f16))));
    }
    if (!std::isnan(bf16)) {
      ASSERT_EQ(kernel::native::narrow_bf16(bf16).bits, half);
    } else {
      ASSERT_TRUE(std::isnan(kernel::native::widen(kernel::native::narrow_bf16(bf16))));
    }
  }
}

TEST(Cast, RoundsToNearestEven) {
  std::vector<float> values = {
      0.0f,           -0.0f,         1.0f,      1.00390625f,   1.01171875f,   1.00048828125f,
      1.00146484375f, 65504.0f,      -65519.0f, 5.9604645e-8f, 2.9802322e-8f, 2.9802326e-8f,
      8.9406967e-8f,  6.0975552e-5f, 1e-3f,     -3.14159274f,  0.333333f};
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 100);
  for (int i = 0; i < 50; ++i) values.push_back(normal(random));
  const int64_t n = static_cast<int64_t>(values.size());
  KernelBench bench;
  const int32_t x = bench.filled(DType::F32, {n}, values);
  const int32_t bf16 = bench.tensor(DType::BF16, {n}), f16 = bench.tensor(DType::F16, {n});
  ASSERT_TRUE(run_native(bench, instruction("dc.cast", {tensor_arg(x)}, {bf16})).ok());
  ASSERT_TRUE(run_native(bench, instruction("dc.cast", {tensor_arg(x)}, {f16})).ok());
  for (int64_t i = 0; i < n; ++i) {
    EXPECT_EQ(bench.values<uint16_t>(bf16)[i], nearest<BF16>(values[i])) << values[i];
    EXPECT_EQ(bench.values<uint16_t>(f16)[i], nearest<F16>(values[i])) << values[i];
  }
}

TEST(Cast, OverflowsToInfinityAtTheMiddle) {
  EXPECT_EQ(kernel::native::narrow_f16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(kernel::native::narrow_f16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(kernel::native::narrow_f16(-1e9f).bits, 0xfc00);
  EXPECT_EQ(kernel::native::narrow_bf16(std::numeric_limits<float>::max()).bits, 0x7f80);
}

TEST(Cast, CoversAllPairsOfTypes) {
  const DType types[] = {DType::U8,  DType::I8,  DType::I16, DType::I32,  DType::I64,
                         DType::F16, DType::F32, DType::F64, DType::Bool, DType::BF16};
  for (DType from : types) {
    for (DType to : types) {
      KernelBench bench;
      const int32_t start = bench.filled<float>(DType::F32, {5}, {0, 1, 2, 3, 100});
      const int32_t x = bench.tensor(from, {5}), y = bench.tensor(to, {5});
      const int32_t back = bench.tensor(DType::F64, {5});
      ASSERT_TRUE(run_native(bench, instruction("dc.cast", {tensor_arg(start)}, {x})).ok());
      ASSERT_TRUE(run_native(bench, instruction("dc.cast", {tensor_arg(x)}, {y})).ok());
      ASSERT_TRUE(run_native(bench, instruction("dc.cast", {tensor_arg(y)}, {back})).ok());
      const bool truth = from == DType::Bool || to == DType::Bool;
      const std::vector<double> expected =
          truth ? std::vector<double>{0, 1, 1, 1, 1} : std::vector<double>{0, 1, 2, 3, 100};
      EXPECT_EQ(bench.values<double>(back), expected) << base::name(from) << " " << base::name(to);
    }
  }
}

TEST(Cast, FloatToIntegerTruncatesAndStaysInRange) {
  KernelBench bench;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const int32_t x =
      bench.filled<float>(DType::F32, {6}, {1.9f, -1.9f, 300.0f, -300.0f, 1e30f, nan});
  const int32_t y = bench.tensor(DType::I8, {6});
  ASSERT_TRUE(run_native(bench, instruction("dc.cast", {tensor_arg(x)}, {y})).ok());
  EXPECT_EQ(bench.values<int8_t>(y), (std::vector<int8_t>{1, -1, 127, -128, 127, 0}));
}

TEST(Elementwise, CopyZeroAndUnalignedTails) {
  for (int64_t n : {0, 1, 3, 31, 67}) {
    KernelBench bench;
    std::vector<int16_t> values(n);
    for (int64_t i = 0; i < n; ++i) values[i] = static_cast<int16_t>(i - 5);
    const int32_t from = bench.filled(DType::I16, {n}, values), to = bench.tensor(DType::I16, {n});
    const int32_t guard = bench.filled<int16_t>(DType::I16, {1}, {77});
    ASSERT_TRUE(run_native(bench, instruction("dc.copy", {tensor_arg(to), tensor_arg(from)})).ok());
    EXPECT_EQ(bench.values<int16_t>(to), values);
    ASSERT_TRUE(run_native(bench, instruction("dc.zero", {tensor_arg(to)})).ok());
    EXPECT_EQ(bench.values<int16_t>(to), std::vector<int16_t>(n, 0));
    EXPECT_EQ(bench.values<int16_t>(guard)[0], 77);
  }
}

TEST(Elementwise, AccumulatesEveryGradientType) {
  for (int64_t n : {0, 1, 17, 1000}) {
    KernelBench bench;
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<float> sum(n), g(n);
    std::vector<uint16_t> half(n), brain(n);
    for (int64_t i = 0; i < n; ++i) {
      sum[i] = normal(random);
      g[i] = normal(random);
      half[i] = kernel::native::narrow_f16(normal(random)).bits;
      brain[i] = kernel::native::narrow_bf16(normal(random)).bits;
    }
    const int32_t acc = bench.filled(DType::F32, {n}, sum);
    const int32_t added[] = {bench.filled(DType::F32, {n}, g), bench.filled(DType::F16, {n}, half),
                             bench.filled(DType::BF16, {n}, brain)};
    for (int32_t tensor : added) {
      const auto step = instruction("dc.accumulate", {tensor_arg(acc), tensor_arg(tensor)});
      ASSERT_TRUE(run_native(bench, step).ok());
    }
    for (int64_t i = 0; i < n; ++i) {
      float expected = sum[i] + g[i];
      expected += kernel::native::widen(F16{half[i]});
      expected += kernel::native::widen(BF16{brain[i]});
      EXPECT_EQ(bench.values<float>(acc)[i], expected);
    }
  }
}

TEST(Refusal, NamesTheOpAndTheReason) {
  KernelBench bench;
  const int32_t x = bench.tensor(DType::F32, {4, 4}, {1, 4}), y = bench.tensor(DType::BF16, {4, 4});
  auto strided = run_native(bench, instruction("dc.cast", {tensor_arg(x)}, {y}));
  ASSERT_FALSE(strided.ok());
  EXPECT_EQ(strided.kind(), base::ErrorKind::Unsupported);
  EXPECT_NE(strided.sentence().find("dc.cast"), std::string::npos);
  EXPECT_NE(strided.sentence().find("contiguous"), std::string::npos);
  auto unknown = run_native(bench, instruction("dc.nothing", {}));
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.kind(), base::ErrorKind::Unsupported);
  auto missing = run_native(bench, instruction("dc.zero", {}));
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.sentence().find("operand 0"), std::string::npos);
}

TEST(AddressMap, AddsSliceOffsetTensorOffsetAndRank) {
  KernelBench bench(3);
  bench.slice(100);
  const int32_t id = bench.tensor(DType::F32, {4});
  bench.plan().tensors[id].offset = 16;
  bench.plan().tensors[id].rank_stride = 8;
  const kernel::AddressMap addresses = bench.addresses();
  const auto* start = addresses.slice(bench.plan().tensors[id].slice);
  EXPECT_EQ(start - addresses.slice(0), 128);
  EXPECT_EQ(addresses.bind(id).data, start + 16 + int64_t{3} * 8);
  EXPECT_EQ(addresses.bind(id).numel(), 4);
}

}  // namespace
}  // namespace dc::runtime
