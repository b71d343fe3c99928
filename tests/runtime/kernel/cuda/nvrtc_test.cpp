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
INSTANTIATE_TEST_SUITE_P(Architectures, NvrtcCompiles, ::testing::Values(80, 90, 100),
                         [](const auto& info) { return "sm_" + std::to_string(info.param); });

}  // namespace
}  // namespace dc::runtime
