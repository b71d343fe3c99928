// Native element-wise kernels on random bit patterns: every element has the bits of PyTorch's or is
// within a few roundings of what f64 gives, as far as terms of the operator do not cancel.
#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "runtime/kernel/native/registry.h"
#include "tests/runtime/kernel/aten_cases.h"

namespace dc::runtime {
namespace {

using base::DType;

struct Format {
  int digits = 0;       // of the significand
  int least = 0;        // exponent of the smallest normal number
  double greatest = 0;  // finite
};
Format format_of(DType dtype) {
  switch (dtype) {
    case DType::BF16:
      return {8, -126, 0x1.fep127};
    case DType::F16:
      return {11, -14, 65504};
    case DType::F32:
      return {24, -126, std::numeric_limits<float>::max()};
    default:
      return {53, -1022, std::numeric_limits<double>::max()};
  }
}

// In distances of the format's numbers at `scale` or, if that is greater, at the exact one; what
// the format holds as infinite is as its greatest.
double ulps(double got, double exact, double scale, const Format& format) {
  if (got == exact || (std::isnan(got) && std::isnan(exact))) return 0;
  if (std::isnan(got) || std::isnan(exact)) return std::numeric_limits<double>::infinity();
  got = std::clamp(got, -format.greatest, format.greatest);
  exact = std::clamp(exact, -format.greatest, format.greatest);
  const double size = std::min(std::max(std::fabs(exact), scale), format.greatest);
  const int exponent = size == 0 ? format.least : std::max(std::ilogb(size), format.least);
  return std::ldexp(std::fabs(got - exact), format.digits - 1 - exponent);
}

// The floating-point operands of one element.
std::vector<double> operands(KernelBench& bench, const plan::Instruction& step, int64_t at) {
  std::vector<double> numbers;
  for (const plan::Arg& arg : step.args) {
    if (arg.kind != plan::ArgKind::Tensor) continue;
    const auto id = static_cast<int32_t>(arg.i);
    const plan::Tensor& tensor = bench.plan().tensors[static_cast<size_t>(id)];
    if (base::is_floating(tensor.dtype))
      numbers.push_back(
          element(bench.data<uint8_t>(id), tensor.dtype, tensor.sizes.empty() ? 0 : at));
  }
  return numbers;
}

// The size of terms that may nearly cancel: 1 + erf(x), 1 + x (1 - sigmoid(x)), 1 - y^2, x + y z;
// the factor x counts near 0 alone, for far from it there is but one term.
double size_of_terms(const std::string& op, const std::vector<double>& operands) {
  constexpr double kFar = 8;
  const auto near = [&](size_t i) { return std::min(std::fabs(operands[i]), kFar); };
  if (op == "aten.gelu.default") return near(0);
  if (op == "aten.gelu_backward.default") return std::fabs(operands[0]) * (1 + near(1) * near(1));
  if (op == "aten.silu_backward.default") return std::fabs(operands[0]) * (1 + near(1));
  if (op == "aten.tanh_backward.default") return std::fabs(operands[0]);
  if (op == "aten.addcmul.default" || op == "aten.addcdiv.default") return std::fabs(operands[0]);
  return 0;
}

class Comparison {
 public:
  Comparison(KernelBench& bench, const AtenCase& sample, const plan::Instruction& step)
      : bench_(bench), sample_(sample), step_(step) {}

  // Result `index`; `exact`: null where nothing is rounded.
  void expect(size_t index, const ExpectedTensor* exact) {
    const ExpectedTensor& aten = sample_.results[index];
    const uint8_t* got = bench_.data<uint8_t>(step_.outputs[index]);
    const size_t size = base::byte_size(aten.dtype);
    int failed = 0;
    for (size_t i = 0; i * size < aten.bytes.size() && failed < kShown; ++i) {
      if (std::memcmp(got + i * size, aten.bytes.data() + i * size, size) == 0) continue;
      const auto at = static_cast<int64_t>(i);
      const double ours = element(got, aten.dtype, at);
      const double theirs = element(aten.bytes.data(), aten.dtype, at);
      if (std::isnan(ours) && std::isnan(theirs)) continue;
      const std::vector<double> from = operands(bench_, step_, at);
      const double want = exact == nullptr ? theirs : element(exact->bytes.data(), DType::F64, at);
      const double scale = exact == nullptr ? 0 : size_of_terms(sample_.op, from);
      const double most = exact == nullptr ? 0 : kUlps;
      if (ulps(ours, want, scale, format_of(aten.dtype)) <= most) continue;
      ++failed;
      ADD_FAILURE() << ours << " in place of " << want << ", PyTorch has " << theirs << ", of "
                    << testing::PrintToString(from);
    }
  }

 private:
  static constexpr double kUlps = 4;
  static constexpr int kShown = 3;  // of a result

  KernelBench& bench_;
  const AtenCase& sample_;
  const plan::Instruction& step_;
};

TEST(NativeBitPatterns, GiveWhatPyTorchGives) {
  const auto provider = kernel::make_native_provider();
  std::set<std::string, std::less<>> taken;
  for (const AtenCase& sample : read_cases(DC_BIT_PATTERNS)) {
    KernelBench bench;
    const plan::Instruction step = place(bench, sample);
    const testing::ScopedTrace trace(
        __FILE__, __LINE__,
        sample.op + " " + sample.name + " " + std::string(base::name(sample.results[0].dtype)));
    auto kernel = provider->prepare(step, bench.addresses());
    if (!kernel.ok()) continue;  // does not take this element type
    taken.insert(sample.op);
    ASSERT_TRUE((*kernel)->launch(*device::cpu_device().make_stream()).ok());
    size_t exact = 0;
    for (size_t i = 0; i < sample.results.size(); ++i) {
      const bool rounds = base::is_floating(sample.results[i].dtype);
      Comparison(bench, sample, step).expect(i, rounds ? &sample.exact[exact++] : nullptr);
    }
  }
  namespace native = kernel::native;
  for (const auto kernels :
       {native::activation_kernels, native::arithmetic_kernels, native::choice_kernels}) {
    for (const native::Row& row : kernels())
      EXPECT_TRUE(taken.contains(row.op)) << row.op << " has no bit patterns";
  }
}

}  // namespace
}  // namespace dc::runtime
