// adamw and sgd against scalar references and against PyTorch's own numbers.
#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <span>
#include <utility>

#include "runtime/kernel/scalar/update.h"
#include "src/base/shape.h"
#include "src/base/step_scalars.h"
#include "tests/runtime/kernel/kernel_bench.h"

namespace dc::runtime {
namespace {

using base::DType;

struct Settings {
  double lr = 1e-2, weight_decay = 0.1, beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double momentum = 0, dampening = 0, clip = 1, allowed = 1, scale = 1;
  bool nesterov = false;
};

// One parameter of `n` elements in group 1, parameter column 2.
class Update {
 public:
  Update(int64_t n, const std::vector<float>& p, bool adamw)
      : adamw_(adamw),
        p_(bench_.filled(DType::F32, {n}, p)),
        first_(bench_.filled(DType::F32, {n}, std::vector<float>(n, 0))),
        second_(bench_.filled(DType::F32, {n}, std::vector<float>(n, 0))),
        g_(bench_.tensor(DType::F32, {n})),
        scalars_(bench_.filled(DType::F64, {base::kScalarFinite + 3},
                               std::vector<double>(base::kScalarFinite + 3, 0))),
        hyperparameters_(
            bench_.filled(DType::F64, {base::kHyperGroups + 2 * base::kHyperPerGroup},
                          std::vector<double>(base::kHyperGroups + 2 * base::kHyperPerGroup, 0))) {}

  void step(int number, const std::vector<float>& g, const Settings& s) {
    double* hyperparameters = bench_.data<double>(hyperparameters_);
    hyperparameters[base::kHyperGradScale] = s.scale;
    hyperparameters[base::kHyperStep] = number;
    double* group = hyperparameters + base::kHyperGroups + base::kHyperPerGroup;
    group[base::kGroupLr] = s.lr;
    group[base::kGroupWeightDecay] = s.weight_decay;
    group[base::kGroupBeta1] = s.beta1;
    group[base::kGroupBeta2] = s.beta2;
    group[base::kGroupEps] = s.eps;
    group[base::kGroupMomentum] = s.momentum;
    group[base::kGroupDampening] = s.dampening;
    double* scalars = bench_.data<double>(scalars_);
    scalars[base::kScalarClip] = s.clip;
    scalars[base::kScalarFinite + 2] = s.allowed;
    if (!g.empty()) std::memcpy(bench_.data<float>(g_), g.data(), g.size() * sizeof(float));
    run(adamw_ ? adamw(g_) : sgd(s, g_));
  }
  // The same with a gradient of another type, and the new parameter rounded to it in the same
  // sweep.
  void step_in(DType dtype, int number, const std::vector<float>& g, Settings s) {
    const auto n = static_cast<int64_t>(g.size());
    if (copy_ < 0) copy_ = bench_.tensor(dtype, {n}), narrow_ = bench_.tensor(dtype, {n});
    std::memcpy(bench_.data<float>(g_), g.data(), g.size() * sizeof(float));
    run(instruction("dc.cast", {tensor_arg(g_)}, {narrow_}));
    const double allowed = std::exchange(s.allowed, 0);
    step(number, {}, s);  // sets what there is to set, and does nothing
    bench_.data<double>(scalars_)[base::kScalarFinite + 2] = allowed;
    plan::Instruction update = adamw_ ? adamw(narrow_) : sgd(s, narrow_);
    const auto behind = update.args.begin() + (adamw_ ? 6 : 5);
    update.args.insert(behind, tensor_arg(copy_));
    run(update);
  }
  // The gradient that step_in read, as f32.
  std::vector<float> widened(int64_t n) {
    const int32_t wide = bench_.tensor(DType::F32, {n});
    run(instruction("dc.cast", {tensor_arg(narrow_)}, {wide}));
    return bench_.values<float>(wide);
  }
  std::span<const std::byte> copy() { return bytes(copy_); }
  // p in that type, by the kernel apart.
  std::span<const std::byte> rounded(DType dtype, int64_t n) {
    const int32_t apart = bench_.tensor(dtype, {n});
    run(instruction("dc.cast", {tensor_arg(p_)}, {apart}));
    return bytes(apart);
  }

  std::vector<float> p() { return bench_.values<float>(p_); }
  std::vector<float> first() { return bench_.values<float>(first_); }
  std::vector<float> second() { return bench_.values<float>(second_); }

 private:
  void run(const plan::Instruction& step) {
    const auto status = run_native(bench_, step);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  std::span<const std::byte> bytes(int32_t id) {
    const plan::Tensor& tensor = bench_.plan().tensors[static_cast<size_t>(id)];
    return {bench_.data<std::byte>(id),
            static_cast<size_t>(base::numel(tensor.sizes) * base::byte_size(tensor.dtype))};
  }
  plan::Instruction adamw(int32_t g) const {
    return instruction("dc.adamw",
                       {tensor_arg(p_), tensor_arg(first_), tensor_arg(second_), tensor_arg(g),
                        tensor_arg(scalars_), tensor_arg(hyperparameters_), int_arg("param", 2),
                        int_arg("group", 1), int_arg("clip", 1)});
  }
  plan::Instruction sgd(const Settings& s, int32_t g) const {
    const int32_t buffer = s.momentum != 0 ? first_ : p_;
    return instruction(
        "dc.sgd",
        {tensor_arg(p_), tensor_arg(buffer), tensor_arg(g), tensor_arg(scalars_),
         tensor_arg(hyperparameters_), int_arg("param", 2), int_arg("group", 1), int_arg("clip", 1),
         int_arg("momentum", s.momentum != 0), int_arg("nesterov", s.nesterov)});
  }

  KernelBench bench_;
  bool adamw_;
  int32_t p_, first_, second_, g_, scalars_, hyperparameters_;
  int32_t narrow_ = -1, copy_ = -1;
};

std::vector<float> noise(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(AdamW, MatchesTheScalarFormulaBitForBit) {
  const int64_t n = 1003;
  for (double beta1 : {0.9, 0.3}) {
    Settings s;
    s.beta1 = beta1;
    s.clip = 0.37;
    std::vector<float> p = noise(n, 1), m(n, 0), v(n, 0);
    Update update(n, p, true);
    for (int step = 1; step <= 4; ++step) {
      const std::vector<float> g = noise(n, 10 + step);
      update.step(step, g, s);
      const float step_size = static_cast<float>(s.lr / (1 - std::pow(s.beta1, step)));
      const float root = static_cast<float>(std::sqrt(1 - std::pow(s.beta2, step)));
      const float lerp = static_cast<float>(1 - s.beta1);
      for (int64_t i = 0; i < n; ++i) {
        const float gradient = g[i] * static_cast<float>(s.clip);
        p[i] *= static_cast<float>(1 - s.lr * s.weight_decay);
        m[i] = lerp < 0.5f ? m[i] + lerp * (gradient - m[i])
                           : gradient - (gradient - m[i]) * (1.0f - lerp);
        v[i] = v[i] * static_cast<float>(s.beta2);
        v[i] = v[i] + static_cast<float>(1 - s.beta2) * gradient * gradient;
        const float denominator = std::sqrt(v[i]) / root + static_cast<float>(s.eps);
        p[i] = p[i] + -step_size * m[i] / denominator;
      }
      EXPECT_EQ(update.p(), p);
      EXPECT_EQ(update.first(), m);
      EXPECT_EQ(update.second(), v);
    }
  }
}

// Whose quotients are normal floats, as a root of squares' is.
TEST(Divisor, GivesTheBitsOfADivision) {
  std::mt19937 random(3);
  const auto with_exponent = [&](int low, int high) {
    std::uniform_int_distribution<int> exponent(low, high);
    const uint32_t mantissa = random() & 0x7fffffu;
    return std::bit_cast<float>(static_cast<uint32_t>(exponent(random) + 127) << 23 | mantissa);
  };
  for (int round = 0; round < 2000; ++round) {
    // In turns, the root of a step and any number.
    const double correction = 1 - std::pow(round % 4 == 0 ? 0.999 : 0.95, round / 4 + 1);
    const float by =
        round % 2 == 0 ? static_cast<float>(std::sqrt(correction)) : with_exponent(-26, 20);
    const kernel::scalar::Divisor divisor(by);
    for (int i = 0; i < 2000; ++i) {
      const float x = with_exponent(-75, 64);
      ASSERT_EQ(divisor.divide(x), x / by) << x << " / " << by;
    }
    // Quotients next to the middle between two floats.
    for (int i = 0; i < 200; ++i) {
      const float quotient = with_exponent(-3, 3);
      const double middle = (static_cast<double>(quotient) +
                             static_cast<double>(std::nextafter(quotient, INFINITY))) /
                            2;
      const auto nearest = static_cast<float>(middle * static_cast<double>(by));
      for (const float x : {nearest, std::nextafter(nearest, 0.0f)})
        ASSERT_EQ(divisor.divide(x), x / by) << x << " / " << by;
    }
  }
  for (const float x : {0.0f, -0.0f, INFINITY})
    EXPECT_EQ(std::bit_cast<uint32_t>(kernel::scalar::Divisor(0.3f).divide(x)),
              std::bit_cast<uint32_t>(x / 0.3f));
  EXPECT_EQ(kernel::scalar::Divisor(0.0f).divide(1), INFINITY);
  EXPECT_TRUE(std::isnan(kernel::scalar::Divisor(0.0f).divide(0)));
}

// torch.optim.AdamW([p], lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1, foreach=False), three steps,
// torch 2.11.
TEST(AdamW, MatchesPyTorch) {
  Update update(3, {1.0f, -2.0f, 0.5f}, true);
  const Settings s;
  update.step(1, {0.1f, 0.2f, -0.3f}, s);
  update.step(2, {-0.05f, 0.4f, 0.1f}, s);
  update.step(3, {0.2f, -0.1f, 0.0f}, s);
  const std::vector<float> expected = {0.977854609f, -2.01946545f, 0.515686274f};
  for (int i = 0; i < 3; ++i)
    EXPECT_NEAR(update.p()[i], expected[i], 1e-6 * std::fabs(expected[i]));
}

TEST(AdamW, IsIndependentOfPositionAndLength) {
  const std::vector<float> p = noise(200, 5), g = noise(200, 6);
  const Settings s;
  Update all(200, p, true);
  all.step(1, g, s);
  for (int64_t start : {1, 7, 96, 150}) {
    const int64_t n = 200 - start;
    Update part(n, std::vector<float>(p.begin() + start, p.end()), true);
    part.step(1, std::vector<float>(g.begin() + start, g.end()), s);
    const auto whole = all.p();
    EXPECT_EQ(part.p(), std::vector<float>(whole.begin() + start, whole.end()));
  }
}

TEST(AdamW, DoesNothingWhenNotAllowed) {
  const std::vector<float> p = noise(10, 5);
  Update update(10, p, true);
  Settings s;
  s.allowed = 0;
  update.step(1, noise(10, 6), s);
  EXPECT_EQ(update.p(), p);
  EXPECT_EQ(update.first(), std::vector<float>(10, 0));
  EXPECT_EQ(update.second(), std::vector<float>(10, 0));
}

// One sweep gives the bits of kernels apart: cast, scale, update, cast.
TEST(Updates, CastAndScaleTheGradientAndRoundTheParameter) {
  for (const bool is_adamw : {true, false}) {
    for (const DType dtype : {DType::BF16, DType::F16, DType::F64}) {
      for (const int64_t n : {1, 77, 4096, 9500}) {
        Settings s;
        s.scale = 1.0 / 6;
        s.clip = 0.37;
        s.momentum = 0.9;
        Settings apart_settings = s;
        apart_settings.scale = 1;
        const std::vector<float> p = noise(n, 1);
        Update together(n, p, is_adamw), apart(n, p, is_adamw);
        for (int step = 1; step <= 3; ++step) {
          together.step_in(dtype, step, noise(n, 30 + step), s);
          std::vector<float> g = together.widened(n);
          for (float& each : g) each = each * static_cast<float>(s.scale);
          apart.step(step, g, apart_settings);
          ASSERT_EQ(together.p(), apart.p());
          ASSERT_EQ(together.first(), apart.first());
          ASSERT_EQ(together.second(), apart.second());
          ASSERT_TRUE(std::ranges::equal(together.copy(), together.rounded(dtype, n)));
        }
      }
    }
  }
}

TEST(Updates, RoundTheParameterAlsoWhenNotAllowed) {
  const std::vector<float> p = noise(5000, 5);
  Update update(5000, p, true);
  Settings s;
  s.allowed = 0;
  update.step_in(DType::BF16, 1, noise(5000, 6), s);
  EXPECT_EQ(update.p(), p);
  EXPECT_TRUE(std::ranges::equal(update.copy(), update.rounded(DType::BF16, 5000)));
}

TEST(Updates, RefuseACopyThatIsNone) {
  for (const DType dtype : {DType::F32, DType::I32}) {
    KernelBench bench;
    const int32_t p = bench.tensor(DType::F32, {4}), g = bench.tensor(DType::F32, {4}),
                  copy = bench.tensor(dtype, {4}), scalars = bench.tensor(DType::F64, {9}),
                  hyperparameters = bench.tensor(DType::F64, {16});
    const auto status = run_native(
        bench,
        instruction("dc.sgd", {tensor_arg(p), tensor_arg(p), tensor_arg(g), tensor_arg(scalars),
                               tensor_arg(hyperparameters), tensor_arg(copy), int_arg("param", 0),
                               int_arg("group", 0), int_arg("clip", 0), int_arg("momentum", 0),
                               int_arg("nesterov", 0)}));
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.sentence().find("copy"), std::string::npos);
  }
}

TEST(AdamW, AcceptsAnEmptyRange) { Update(0, {}, true).step(1, {}, Settings()); }

TEST(Sgd, MatchesTheScalarFormulaBitForBit) {
  const int64_t n = 77;
  struct Case {
    double momentum, dampening;
    bool nesterov;
  };
  for (const Case& c :
       {Case{0, 0, false}, Case{0.9, 0, false}, Case{0.9, 0.25, false}, Case{0.9, 0, true}}) {
    Settings s;
    s.momentum = c.momentum;
    s.dampening = c.dampening;
    s.nesterov = c.nesterov;
    s.clip = 0.5;
    std::vector<float> p = noise(n, 1), buffer(n, 0);
    Update update(n, p, false);
    for (int step = 1; step <= 3; ++step) {
      const std::vector<float> g = noise(n, 20 + step);
      update.step(step, g, s);
      for (int64_t i = 0; i < n; ++i) {
        const float gradient = g[i] * 0.5f + static_cast<float>(s.weight_decay) * p[i];
        float direction = gradient;
        if (c.momentum != 0) {
          buffer[i] = step == 1 ? gradient
                                : buffer[i] * static_cast<float>(s.momentum) +
                                      static_cast<float>(1 - s.dampening) * gradient;
          direction =
              c.nesterov ? gradient + static_cast<float>(s.momentum) * buffer[i] : buffer[i];
        }
        p[i] = p[i] + static_cast<float>(-s.lr) * direction;
      }
      EXPECT_EQ(update.p(), p);
      EXPECT_EQ(update.first(), buffer);
    }
  }
}

// torch.optim.SGD([p], lr=1e-2, momentum=0.9, nesterov=True, weight_decay=0.1, foreach=False),
// three steps, torch 2.11.
TEST(Sgd, MatchesPyTorch) {
  Update update(3, {1.0f, -2.0f, 0.5f}, false);
  Settings s;
  s.momentum = 0.9;
  s.nesterov = true;
  update.step(1, {0.1f, 0.2f, -0.3f}, s);
  update.step(2, {-0.05f, 0.4f, 0.1f}, s);
  update.step(3, {0.2f, -0.1f, 0.0f}, s);
  const std::vector<float> expected = {0.986089408f, -1.99971271f, 0.503562152f};
  for (int i = 0; i < 3; ++i)
    EXPECT_NEAR(update.p()[i], expected[i], 1e-6 * std::fabs(expected[i]));
}

TEST(Sgd, MomentumNeedsItsOwnBuffer) {
  KernelBench bench;
  const int32_t p = bench.tensor(DType::F32, {4}), g = bench.tensor(DType::F32, {4});
  const int32_t scalars = bench.tensor(DType::F64, {9}),
                hyperparameters = bench.tensor(DType::F64, {16});
  const auto status = run_native(
      bench,
      instruction("dc.sgd", {tensor_arg(p), tensor_arg(p), tensor_arg(g), tensor_arg(scalars),
                             tensor_arg(hyperparameters), int_arg("param", 0), int_arg("group", 0),
                             int_arg("clip", 0), int_arg("momentum", 1), int_arg("nesterov", 0)}));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.kind(), base::ErrorKind::Unsupported);
}

}  // namespace
}  // namespace dc::runtime
