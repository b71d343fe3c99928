// Every kernel that can be generated is compiled by NVRTC itself for the architectures of today. It
// needs no GPU, and says nothing about what a GPU computes.
#include <set>

#include <gtest/gtest.h>

#include "runtime/kernel/cuda/nvrtc.h"
#include "tests/runtime/kernel/cuda/expressions.h"

namespace dc::runtime {
namespace {

using namespace test;

class Texts {
 public:
  void add(const ExpressionCase& one) {
    std::vector<const void*> addresses;
    const auto source = one.source(nullptr, &addresses);
    ASSERT_TRUE(source.ok()) << source.status().to_string();
    if (names_.insert(source->name).second) text_ += source->text + "\n";
  }
  const std::string& text() const { return text_; }

 private:
  std::set<std::string> names_;
  std::string text_;
};

constexpr DType kTypes[] = {DType::F32, DType::BF16, DType::F16, DType::F64, DType::I64,
                            DType::I32, DType::I16,  DType::I8,  DType::U8,  DType::Bool};

class NvrtcCompiles : public ::testing::TestWithParam<int> {};
TEST_P(NvrtcCompiles, EveryOperatorOnEveryElementType) {
  const auto nvrtc = kernel::cuda::Nvrtc::open(13000);
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status().to_string();
  Texts texts;
  for (const DType dtype : kTypes)
    for (const auto& one : every_operator(dtype)) texts.add(*one);
  const auto code = nvrtc->compile({"operators", texts.text(), 0}, GetParam());
  EXPECT_TRUE(code.ok()) << code.status().to_string();
}
TEST_P(NvrtcCompiles, ExpressionsOfModels) {
  const auto nvrtc = kernel::cuda::Nvrtc::open(13000);
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status().to_string();
  Texts texts;
  for (const DType dtype : {DType::F32, DType::BF16})
    for (const auto& one : expressions_of_models(dtype)) texts.add(*one);
  const auto code = nvrtc->compile({"models", texts.text(), 0}, GetParam());
  EXPECT_TRUE(code.ok()) << code.status().to_string();
}
TEST_P(NvrtcCompiles, ExpressionsDrawnAtRandom) {
  const auto nvrtc = kernel::cuda::Nvrtc::open(13000);
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status().to_string();
  Texts texts;
  for (uint32_t seed = 0; seed < 100; ++seed)
    if (const auto one = random_case(seed)) texts.add(*one);
  const auto code = nvrtc->compile({"random", texts.text(), 0}, GetParam());
  EXPECT_TRUE(code.ok()) << code.status().to_string();
}
TEST_P(NvrtcCompiles, KernelsOfTheStep) {
  struct Row {
    const char *header, *parameters, *function;
  };
  constexpr Row kRows[] = {
      {"update.h", "AdamW", "adamw"},
      {"update.h", "Sgd", "sgd"},
      {"update.h", "Scale", "scale"},
      {"dropout.h", "Dropout", "dropout<float>"},
      {"dropout.h", "Dropout", "dropout<scalar::BF16>"},
      {"dropout.h", "Dropout", "dropout<scalar::F16>"},
      {"sums.h", "SquareSum", "square_sum"},
      {"sums.h", "SquareSumOfParts", "square_sum_of_parts"},
      {"sums.h", "RankSum", "rank_sum<float>"},
      {"sums.h", "RankSum", "rank_sum<scalar::BF16>"},
      {"sums.h", "RankSum", "rank_sum<scalar::F16>"},
      {"reduce.h", "Reduce", "reduce_by_blocks<float, float>"},
      {"reduce.h", "Reduce", "reduce_by_blocks<scalar::BF16, float>"},
      {"reduce.h", "Reduce", "reduce_by_threads<scalar::F16, scalar::F16>"},
      {"reduce.h", "Reduce", "reduce_by_threads<double, double>"},
      {"cross_entropy.h", "CrossEntropy", "cross_entropy_rows<float>"},
      {"cross_entropy.h", "CrossEntropy", "cross_entropy_loss<scalar::BF16>"},
      {"cross_entropy.h", "CrossEntropy", "cross_entropy_gradients<float>"},
      {"cross_entropy.h", "CrossEntropy", "cross_entropy_gradients<scalar::BF16>"},
      {"sums.h", "AddLoss", "add_loss<float>"},
      {"sums.h", "AddLoss", "add_loss<double>"},
      {"sums.h", "AddLoss", "add_loss<scalar::BF16>"},
      {"sums.h", "scalar::CheckFinite", "check_finite"},
      {"sums.h", "scalar::ClipAndCheck", "clip_and_check"}};
  const auto nvrtc = kernel::cuda::Nvrtc::open(13000);
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status().to_string();
  std::string text;
  for (const Row& row : kRows)
    text += std::string("#include \"runtime/kernel/cuda/kernels/") + row.header +
            "\"\nnamespace dc::runtime::kernel::cuda {\nDC_KERNEL(kernel_" +
            std::to_string(&row - kRows) + ", " + row.parameters + ") { " + row.function +
            "(parameters); }\n}\n";
  const auto code = nvrtc->compile({"step", text, 0}, GetParam());
  EXPECT_TRUE(code.ok()) << code.status().to_string();
}
INSTANTIATE_TEST_SUITE_P(Architectures, NvrtcCompiles, ::testing::Values(80, 90, 100),
                         [](const auto& info) { return "sm_" + std::to_string(info.param); });

}  // namespace
}  // namespace dc::runtime
