// Every kernel that can be generated is compiled by NVRTC itself for the architectures of today. It
// needs no GPU, and says nothing about what a GPU computes.
#include <cstdlib>
#include <set>
#include <span>

#include <gtest/gtest.h>

#include "runtime/kernel/cuda/kernels/attention_parameters.h"
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

// What is generated is the same for every architecture: compiled for the middle one, and with
// DCC_SLOW_TESTS=1 for all.
bool compiles_generated(int architecture) {
  return architecture == 90 || std::getenv("DCC_SLOW_TESTS") != nullptr;
}
TEST_P(NvrtcCompiles, EveryOperatorOnEveryElementType) {
  if (!compiles_generated(GetParam())) return;
  const auto nvrtc = kernel::cuda::Nvrtc::open(13000);
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status().to_string();
  Texts texts;
  for (const DType dtype : kTypes)
    for (const auto& one : every_operator(dtype)) texts.add(*one);
  const auto code = nvrtc->compile({"operators", texts.text(), 0}, GetParam());
  EXPECT_TRUE(code.ok()) << code.status().to_string();
}
TEST_P(NvrtcCompiles, ExpressionsOfModels) {
  if (!compiles_generated(GetParam())) return;
  const auto nvrtc = kernel::cuda::Nvrtc::open(13000);
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status().to_string();
  Texts texts;
  for (const DType dtype : {DType::F32, DType::BF16})
    for (const auto& sizes : {KernelBench::Sizes{5, 33}, KernelBench::Sizes{37, 64}})
      for (const auto& one : expressions_of_models(dtype, sizes)) texts.add(*one);
  const auto code = nvrtc->compile({"models", texts.text(), 0}, GetParam());
  EXPECT_TRUE(code.ok()) << code.status().to_string();
}
TEST_P(NvrtcCompiles, ExpressionsDrawnAtRandom) {
  if (!compiles_generated(GetParam())) return;
  const auto nvrtc = kernel::cuda::Nvrtc::open(13000);
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status().to_string();
  Texts texts;
  const auto first = static_cast<uint32_t>(GetParam() * 100);  // each architecture has its own
  for (uint32_t seed = first; seed < first + 20; ++seed) {
    for (const Ranges ranges : {Ranges::None, Ranges::Some})
      for (const Ends ends : {Ends::Elementwise, Ends::WithReductions})
        if (const auto one = random_case(seed, ends, ranges)) texts.add(*one);
    if (const auto one = random_case(seed, Ends::ReadsRows)) texts.add(*one);
  }
  const auto code = nvrtc->compile({"random", texts.text(), 0}, GetParam());
  EXPECT_TRUE(code.ok()) << code.status().to_string();
}
struct Row {
  const char *header, *parameters, *function;
};
void expect_kernels(std::span<const Row> rows, int architecture) {
  const auto nvrtc = kernel::cuda::Nvrtc::open(13000);
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status().to_string();
  std::string text;
  for (size_t i = 0; i < rows.size(); ++i)
    text += std::string("#include \"runtime/kernel/cuda/kernels/") + rows[i].header +
            "\"\nnamespace dc::runtime::kernel::cuda {\nDC_KERNEL(kernel_" + std::to_string(i) +
            ", " + rows[i].parameters + ") { " + rows[i].function + "(parameters); }\n}\n";
  const auto code = nvrtc->compile({"kernels", text, 0}, architecture);
  EXPECT_TRUE(code.ok()) << code.status().to_string();
}

TEST_P(NvrtcCompiles, KernelsOfTheStep) {
  constexpr Row kRows[] = {{"update.h", "AdamW", "adamw<float, float>"},
                           {"update.h", "AdamW", "adamw<scalar::BF16, scalar::BF16>"},
                           {"update.h", "AdamW", "adamw<double, scalar::F16>"},
                           {"update.h", "Sgd", "sgd<float, float>"},
                           {"update.h", "Sgd", "sgd<scalar::F16, scalar::F16>"},
                           {"drawing.h", "Draw", "draw<float, float>"},
                           {"drawing.h", "Draw", "draw<scalar::BF16, float>"},
                           {"drawing.h", "Draw", "draw<scalar::F16, scalar::BF16>"},
                           {"dropout.h", "Dropout", "dropout<float>"},
                           {"dropout.h", "Dropout", "dropout<scalar::BF16>"},
                           {"dropout.h", "Dropout", "dropout<scalar::F16>"},
                           {"fill_words.h", "FillWords", "fill_words"},
                           {"sums.h", "SquareSum", "square_sum<float>"},
                           {"sums.h", "SquareSum", "square_sum<scalar::BF16>"},
                           {"sums.h", "RankSum", "rank_sum<float>"},
                           {"sums.h", "RankSum", "rank_sum<scalar::BF16>"},
                           {"sums.h", "RankSum", "rank_sum<scalar::F16>"},
                           {"sums.h", "MappedRankSum", "mapped_rank_sum<float>"},
                           {"sums.h", "MappedRankSum", "mapped_rank_sum<scalar::BF16>"},
                           {"sums.h", "MappedRankSum", "mapped_rank_sum<scalar::F16>"},
                           {"sums.h", "AddLoss", "add_loss<float>"},
                           {"sums.h", "AddLoss", "add_loss<double>"},
                           {"sums.h", "AddLoss", "add_loss<scalar::BF16>"},
                           {"sums.h", "scalar::CheckFinite", "check_finite"},
                           {"sums.h", "scalar::ClipAndCheck", "clip_and_check"}};
  expect_kernels(kRows, GetParam());
}
TEST_P(NvrtcCompiles, KernelsOfTheModel) {
  constexpr Row kRows[] = {
      {"copies.h", "CopyRegion", "copy_region<Word16, Word16>"},
      {"copies.h", "CopyRegion", "copy_region<scalar::uint8_t, scalar::uint8_t>"},
      {"copies.h", "CopyRegion", "copy_region<scalar::BF16, float>"},
      {"copies.h", "CopyRegion", "copy_region<float, scalar::int64_t>"},
      {"copies.h", "CopyRegion", "copy_region<scalar::Bool, scalar::F16>"},
      {"copies.h", "FillRegion", "fill_region<Word16>"},
      {"copies.h", "FillRegion", "fill_region<scalar::uint16_t>"},
      {"copies.h", "Triangle", "triangle<scalar::uint32_t>"},
      {"copies.h", "Arange", "arange<scalar::int64_t>"},
      {"copies.h", "Arange", "arange<scalar::BF16>"},
      {"embedding.h", "Embedding", "embedding<scalar::int64_t, Word16>"},
      {"embedding.h", "Embedding", "embedding<scalar::int32_t, scalar::uint16_t>"},
      {"embedding.h", "EmbeddingBackward", "embedding_links<scalar::int64_t>"},
      {"embedding.h", "EmbeddingBackward",
       "embedding_gradients<scalar::int64_t, scalar::BF16, scalar::BF16>"},
      {"gather.h", "Gather", "gather<scalar::int64_t, scalar::uint32_t>"},
      {"gather.h", "Scatter", "scatter<scalar::int64_t, scalar::uint32_t>"},
      {"gather.h", "Scatter", "scatter_add<scalar::int32_t, scalar::BF16>"},
      {"gather.h", "Scatter", "scatter_add<scalar::int64_t, scalar::int64_t>"},
      {"index.h", "IndexTensors", "index_read<Word16>"},
      {"index.h", "IndexTensors", "index_links"},
      {"index.h", "IndexTensors", "index_put<scalar::uint16_t>"},
      {"index.h", "IndexTensors", "index_add<scalar::BF16>"},
      {"index.h", "IndexTensors", "index_add<scalar::int32_t>"},
      {"reduce.h", "Reduce", "reduce_by_blocks<float, float, SumFold>"},
      {"reduce.h", "Reduce", "reduce_by_blocks<scalar::BF16, float, MaxFold>"},
      {"reduce.h", "Reduce", "reduce_by_blocks<scalar::Bool, scalar::Bool, AnyFold>"},
      {"reduce.h", "Reduce", "reduce_by_columns<scalar::F16, scalar::F16, MinFold>"},
      {"reduce.h", "Reduce", "reduce_by_columns<double, double, ProductFold>"},
      {"reduce.h", "Reduce", "reduce_by_columns<scalar::int64_t, scalar::int64_t, SumFold>"},
      {"reduce.h", "Reduce", "reduce_by_blocks<scalar::int64_t, scalar::int64_t, MinFold>"},
      {"reduce.h", "Reduce", "reduce_by_rows<scalar::BF16, float, SumFold, 128>"},
      {"reduce.h", "Reduce", "reduce_by_rows<scalar::Bool, scalar::int64_t, SumFold, 32>"},
      {"reduce.h", "Reduce",
       "reduce_by_columns<Total<float, scalar::BF16>, scalar::BF16, SumFold>"},
      {"reduce.h", "ReduceParts", "reduce_parts_by_columns<float, scalar::BF16, MaxFold>"},
      {"reduce.h", "Variance", "variance<scalar::BF16, float>"},
      {"softmax.h", "Softmax", "softmax<float, float>"},
      {"softmax.h", "Softmax", "softmax<scalar::BF16, float>"},
      {"softmax.h", "Softmax", "softmax<double, double>"},
      {"softmax.h", "SoftmaxBackward", "softmax_gradients<scalar::BF16, float, scalar::F16>"},
      {"norms.h", "Norm", "norm_rows<float>"},
      {"norms.h", "Norm", "norm_rows<scalar::BF16>"},
      {"norms.h", "Norm", "norm_gradients<double>"},
      {"norms.h", "Norm", "norm_gradients<scalar::BF16>"},
      {"norms.h", "NormColumns", "norm_parts<scalar::BF16>"},
      {"norms.h", "NormColumns", "norm_columns"},
      {"nll_loss.h", "NllLoss", "nll_loss<float>"},
      {"nll_loss.h", "NllLossBackward", "nll_loss_gradients<scalar::BF16>"},
      {"cross_entropy.h", "CrossEntropy", "cross_entropy_rows<float>"},
      {"cross_entropy.h", "CrossEntropy", "cross_entropy_loss<scalar::BF16>"},
      {"cross_entropy.h", "CrossEntropy", "cross_entropy_gradients<float>"},
      {"cross_entropy.h", "CrossEntropy", "cross_entropy_gradients<scalar::BF16>"},
      {"logits.h", "LogitPart", "logit_powers<float>"},
      {"logits.h", "LogitPart", "logit_powers_of_tiles<scalar::BF16>"},
      {"logits.h", "LogitPart", "logit_gradients<scalar::BF16>"},
      {"logits.h", "LogitLoss", "logit_total"},
      {"logits.h", "LogitLoss", "logit_rows"},
      {"logits.h", "LogitLoss", "logit_loss"}};
  expect_kernels(kRows, GetParam());
}
TEST_P(NvrtcCompiles, Attention) {
  constexpr Row kRows[] = {
      {"attention.h", "Attention", "attention<scalar::BF16, 128>"},
      {"attention.h", "Attention", "attention<float, 32>"},
      {"attention_backward.h", "AttentionBackward", "attention_deltas<scalar::BF16>"},
      {"attention_backward.h", "AttentionBackward", "attention_key_gradients<scalar::BF16, 64>"},
      {"attention_backward.h", "AttentionBackward", "attention_query_gradients<float, 64>"}};
  expect_kernels(kRows, GetParam());
}
TEST_P(NvrtcCompiles, KernelsOfImages) {
  constexpr Row kRows[] = {{"convolution.h", "Convolution", "convolve_to_maps<float, 4>"},
                           {"convolution.h", "Convolution", "convolve_to_maps<scalar::BF16, 1>"},
                           {"convolution.h", "Convolution", "convolve_to_maps<float, 8>"},
                           {"convolution.h", "Convolution", "convolve_to_image<scalar::BF16, 8>"},
                           {"convolution.h", "Convolution", "convolve_to_image<double, 4>"},
                           {"convolution.h", "FilterGradient", "filter_gradients<float, 4>"},
                           {"convolution.h", "FilterGradient", "filter_gradients<scalar::F16, 1>"},
                           {"convolution.h", "FilterGradient", "filter_gradients<double, 8>"},
                           {"convolution.h", "FilterSum", "filter_sums<float>"},
                           {"convolution.h", "FilterSum", "filter_sums<scalar::BF16>"},
                           {"batch_norm.h", "BatchNorm", "batch_norm_sums<float>"},
                           {"batch_norm.h", "BatchNorm", "batch_norm_squares<scalar::BF16>"},
                           {"batch_norm.h", "BatchNorm", "batch_norm<scalar::BF16>"},
                           {"batch_norm.h", "BatchNorm", "batch_norm<double>"},
                           {"batch_norm.h", "BatchNorm", "batch_norm_gradient_sums<scalar::F16>"},
                           {"batch_norm.h", "BatchNorm", "batch_norm_gradients<float>"},
                           {"pooling.h", "Pooling", "max_pool<scalar::BF16>"},
                           {"pooling.h", "Pooling", "max_pool_gradients<float>"},
                           {"pooling.h", "Pooling", "average_pool<double>"},
                           {"pooling.h", "Pooling", "average_pool_gradients<scalar::F16>"}};
  expect_kernels(kRows, GetParam());
}
TEST_P(NvrtcCompiles, OrdersScansAndEquations) {
  constexpr Row kRows[] = {
      {"order.h", "Order", "sort_rows<float, false>"},
      {"order.h", "Order", "topk_rows<scalar::BF16, true>"},
      {"order.h", "Order", "topk_rows<scalar::int64_t, false>"},
      {"order.h", "Order", "stable_sort_rows<scalar::int64_t, false>"},
      {"order.h", "Order", "stable_sort_rows<scalar::F16, true>"},
      {"histogram.h", "Histogram", "histogram_ends<float>"},
      {"histogram.h", "Histogram", "histogram<scalar::BF16, float>"},
      {"scan.h", "CumulativeSum", "cumulative_sums<scalar::int64_t, scalar::int64_t>"},
      {"scan.h", "CumulativeSum", "cumulative_sums<scalar::Bool, scalar::int64_t>"},
      {"scan.h", "CumulativeSum", "cumulative_sums<scalar::BF16, float>"},
      {"scan.h", "Extreme", "extremes<float, true>"},
      {"scan.h", "Extreme", "extremes<scalar::int64_t, false>"},
      {"scan.h", "Extreme", "extremes<scalar::Bool, true>"},
      {"reduce.h", "Reduce", "logsumexp<scalar::BF16, scalar::BF16>"},
      {"reduce.h", "Reduce", "logsumexp<double, double>"},
      {"reduce.h", "VectorNorm", "vector_norm<scalar::BF16, float>"},
      {"reduce.h", "VectorNorm", "vector_norm<float, float>"},
      {"triangular.h", "TriangularSystem", "solve_triangular<float>"},
      {"triangular.h", "TriangularSystem", "solve_triangular<double>"}};
  expect_kernels(kRows, GetParam());
}
TEST_P(NvrtcCompiles, AttentionOnTensorCores) {
  constexpr const char *kHeader = "tensor_attention_backward.h", *kType = "TensorAttentionBackward";
  constexpr Row kRows[] = {
      {"tensor_attention.h", "Attention",
       "tensor_attention<scalar::BF16, 64, false, forward_shape(64)>"},
      {"tensor_attention.h", "Attention",
       "tensor_attention<scalar::F16, 128, true, forward_shape(128)>"},
      {kHeader, kType, "tensor_attention_deltas<scalar::BF16>"},
      {kHeader, kType, "tensor_attention_key_gradients<scalar::BF16, 64, true, key_shape(64)>"},
      {kHeader, kType, "tensor_attention_key_gradients<scalar::F16, 128, false, key_shape(128)>"},
      {kHeader, kType, "tensor_attention_key_sums<scalar::F16>"},
      {kHeader, kType,
       "tensor_attention_query_gradients<scalar::BF16, 48, false, query_shape(48)>"},
      {kHeader, kType,
       "tensor_attention_query_gradients<scalar::F16, 128, true, query_shape(128)>"}};
  expect_kernels(kRows, GetParam());
  constexpr Row kGroupRows[] = {
      {"tensor_attention.h", "Attention",
       "tensor_attention<scalar::BF16, 64, false, forward_shape(64, true)>"},
      {"tensor_attention.h", "Attention",
       "tensor_attention<scalar::F16, 128, true, forward_shape(128, true)>"},
      {"tensor_attention_joint.h", kType,
       "tensor_attention_joint_gradients<scalar::BF16, 64, false>"},
      {"tensor_attention_joint.h", kType,
       "tensor_attention_joint_gradients<scalar::F16, 64, true>"},
      {"tensor_attention_joint.h", kType, "tensor_attention_query_sums<scalar::F16, 64>"},
      {"tensor_attention_joint.h", kType,
       "tensor_attention_joint_gradients<scalar::F16, 128, false>"},
      {"tensor_attention_joint.h", kType,
       "tensor_attention_joint_gradients<scalar::BF16, 128, true>"},
      {"tensor_attention_joint.h", kType, "tensor_attention_query_sums<scalar::BF16, 128>"}};
  if (kernel::cuda::are_for_groups(64, GetParam())) expect_kernels(kGroupRows, GetParam());
}
INSTANTIATE_TEST_SUITE_P(Architectures, NvrtcCompiles, ::testing::Values(80, 90, 100),
                         [](const auto& info) { return "sm_" + std::to_string(info.param); });

}  // namespace
}  // namespace dc::runtime
