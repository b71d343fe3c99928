// Attention and its gradients on the double of a GPU, next to the CPU's: lengths around tiles,
// causal, masks that broadcast, heads that share keys, any strides.
#include <gtest/gtest.h>

#include "tests/runtime/kernel/cuda/gpu_bench.h"

namespace dc::runtime {
namespace {

// For all files of this program.
[[maybe_unused]] auto* const gpu_of_tests =
    testing::AddGlobalTestEnvironment(new GpuOfTests);  // NOLINT: GoogleTest owns it

using base::DType;
using Sizes = KernelBench::Sizes;

struct Case {
  const char* name;
  int64_t batch, heads, key_heads, queries, keys, dim;
  bool is_causal = false;
  Sizes mask = {};               // sizes; empty: none
  bool is_length_major = false;  // [batch, length, heads, dim] in memory
  double scale = 0;              // 0: the default
  DType dtype = DType::F32;
  bool hides_row = false;  // the mask hides all keys of query 0
  int64_t window = 0;      // the mask hides keys that are farther back
  bool lowest = false;     // by the lowest number in place of minus infinity
};
void PrintTo(const Case& c, std::ostream* stream) { *stream << c.name; }

const Case kCases[] = {
    {"one", 1, 1, 1, 1, 1, 1},
    {"odd", 1, 2, 2, 3, 17, 5},
    {"more_queries_than_keys", 1, 1, 1, 70, 7, 8, true},
    {"more_keys_than_queries", 1, 1, 1, 5, 70, 8, true},
    {"causal_over_tiles", 1, 1, 1, 150, 150, 24, true},
    {"over_tiles", 1, 1, 1, 65, 129, 33},
    {"scaled", 1, 1, 1, 5, 5, 4, false, {}, false, 0.3},
    {"length_major", 2, 3, 3, 20, 20, 8, true, {}, true},
    {"shared_keys", 2, 6, 2, 19, 19, 8, true},
    {"mask", 2, 2, 2, 9, 11, 8, false, {2, 1, 9, 11}},
    {"mask_of_keys", 2, 2, 2, 9, 70, 8, false, {2, 1, 1, 70}},
    {"hidden_row", 1, 2, 2, 9, 11, 8, false, {9, 11}, false, 0, DType::F32, true},
    {"window", 1, 2, 1, 90, 90, 8, false, {90, 90}, false, 0, DType::F32, false, 20},
    {"bf16", 1, 2, 1, 66, 66, 64, true, {}, true, 0, DType::BF16},
    {"f16_mask", 1, 2, 2, 33, 33, 16, false, {1, 1, 33, 33}, true, 0, DType::F16},
    {"wide", 1, 1, 1, 3, 3, 200, true},
    {"tensor", 1, 1, 1, 1, 1, 16, false, {}, false, 0, DType::BF16},
    {"tensor_causal", 2, 2, 2, 150, 150, 32, true, {}, false, 0, DType::BF16},
    {"tensor_shared_keys", 1, 6, 2, 70, 150, 64, false, {}, true, 0.3, DType::F16},
    {"tensor_two_chains", 1, 4, 2, 300, 300, 64, true, {}, true, 0, DType::BF16},
    {"tensor_even_chains", 2, 3, 1, 400, 500, 64, true, {}, false, 0, DType::F16},
    {"tensor_chain", 1, 4, 1, 300, 290, 64, false, {}, true, 0, DType::BF16},
    {"tensor_late_queries", 1, 2, 1, 400, 140, 64, true, {}, false, 0, DType::BF16},
    {"tensor_48", 1, 1, 1, 130, 40, 48, true, {}, false, 0, DType::BF16},
    {"tensor_more_keys", 1, 2, 1, 40, 300, 128, true, {}, true, 0, DType::BF16},
    {"tensor_128", 1, 4, 1, 130, 130, 128, true, {}, false, 0, DType::F16},
    {"tensor_128_chains", 1, 2, 1, 300, 400, 128, true, {}, true, 0, DType::BF16},
    {"tensor_128_chain", 2, 2, 1, 200, 260, 128, false, {200, 260}, false, 0, DType::F16},
    {"tensor_mask", 2, 2, 1, 70, 90, 64, true, {2, 1, 70, 90}, false, 0, DType::BF16},
    {"tensor_mask_of_keys", 1, 2, 2, 20, 70, 80, false, {1, 1, 1, 70}, false, 0, DType::BF16},
    {"tensor_hidden_row", 1, 2, 2, 40, 40, 64, false, {40, 40}, false, 0, DType::BF16, true},
    {"tensor_window", 1, 2, 1, 90, 90, 16, false, {90, 90}, false, 0, DType::F16, false, 20},
    {"lowest_row", 1, 2, 2, 9, 11, 8, false, {9, 11}, false, 0, DType::F32, true, 0, true},
    {"tensor_lowest_row",
     1,
     2,
     2,
     40,
     40,
     64,
     false,
     {40, 40},
     false,
     0,
     DType::BF16,
     true,
     0,
     true},
    {"tensor_lowest_row_48",
     1,
     2,
     1,
     40,
     40,
     48,
     false,
     {40, 40},
     false,
     0,
     DType::BF16,
     true,
     0,
     true},
    {"tensor_lowest_window",
     1,
     2,
     1,
     90,
     90,
     64,
     false,
     {90, 90},
     false,
     0,
     DType::BF16,
     false,
     20,
     true},
};

class CudaAttention : public ::testing::TestWithParam<Case> {
 protected:
  const Case& c() const { return GetParam(); }
  Sizes strides(int64_t heads, int64_t length) const {
    if (!c().is_length_major) return {};
    return {length * heads * c().dim, c().dim, heads * c().dim, 1};
  }
  int32_t tensor(int64_t heads, int64_t length) {
    return bench_.tensor(c().dtype, {c().batch, heads, length, c().dim}, strides(heads, length));
  }
  int32_t filled(int64_t heads, int64_t length, unsigned seed) {
    return noisy(bench_, c().dtype, {c().batch, heads, length, c().dim}, seed,
                 strides(heads, length));
  }
  void SetUp() override {
    query_ = filled(c().heads, c().queries, 1);
    key_ = filled(c().key_heads, c().keys, 2);
    value_ = filled(c().key_heads, c().keys, 3);
    if (c().mask.empty()) return;
    mask_ = noisy(bench_, c().dtype, c().mask, 4);
    for (int64_t q = 0; q < (c().window > 0 || c().hides_row ? c().queries : 0); ++q)
      for (int64_t k = 0; k < c().keys; ++k)
        if ((c().hides_row && q == 0) || (c().window > 0 && (k > q || k + c().window <= q)))
          hide(q * c().keys + k);
  }
  void hide(int64_t place) {
    namespace scalar = kernel::scalar;
    // The lowest of bf16 is 0xff7f.
    const float lowest = c().dtype == DType::BF16  ? -0x1.fep127f
                         : c().dtype == DType::F16 ? -65504.0f
                                                   : std::numeric_limits<float>::lowest();
    const float hidden = c().lowest ? lowest : -std::numeric_limits<float>::infinity();
    if (c().dtype == DType::BF16)
      bench_.data<scalar::BF16>(mask_)[place] = scalar::store<scalar::BF16>(hidden);
    else if (c().dtype == DType::F16)
      bench_.data<scalar::F16>(mask_)[place] = scalar::store<scalar::F16>(hidden);
    else
      bench_.data<float>(mask_)[place] = hidden;
  }
  plan::Instruction step(const char* op, std::vector<plan::Arg> arguments,
                         const std::vector<int32_t>& results) {
    arguments.push_back(float_arg("dropout_p", 0));
    arguments.push_back(int_arg("is_causal", c().is_causal ? 1 : 0));
    if (mask_ >= 0) arguments.push_back(tensor_arg(mask_, "attn_mask"));
    if (c().scale != 0) arguments.push_back(float_arg("scale", c().scale));
    return instruction(op, std::move(arguments), results);
  }

  KernelBench bench_;
  int32_t query_ = -1, key_ = -1, value_ = -1, mask_ = -1;
};

TEST_P(CudaAttention, GivesTheNumbersOfTheCpu) {
  const double tolerance = 2 * tolerance_of(c().dtype);
  const int32_t out = tensor(c().heads, c().queries);
  const int32_t sums = bench_.tensor(DType::F32, {c().batch, c().heads, c().queries},
                                     {c().queries * c().heads, 1, c().heads});
  expect_near_cpu(
      bench_,
      step("aten._scaled_dot_product_flash_attention_for_cpu.default",
           {tensor_arg(query_, "query"), tensor_arg(key_, "key"), tensor_arg(value_, "value")},
           {out, sums}),
      {out, sums}, tolerance);
  if (HasFailure()) return;
  const int32_t gradient = filled(c().heads, c().queries, 5);
  const std::vector<int32_t> results = {tensor(c().heads, c().queries),
                                        tensor(c().key_heads, c().keys),
                                        tensor(c().key_heads, c().keys)};
  expect_near_cpu(
      bench_,
      step("aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
           {tensor_arg(gradient, "grad_out"), tensor_arg(query_, "query"), tensor_arg(key_, "key"),
            tensor_arg(value_, "value"), tensor_arg(out, "out"), tensor_arg(sums, "logsumexp")},
           results),
      results, 2 * tolerance);
}
INSTANTIATE_TEST_SUITE_P(Cases, CudaAttention, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(CudaAttentionOf, HeadsThatAreTooWideIsRefused) {
  KernelBench bench;
  const Sizes sizes = {1, 1, 2, 257};
  const int32_t query = noisy(bench, DType::F32, sizes, 1), out = bench.tensor(DType::F32, sizes),
                sums = bench.tensor(DType::F32, {1, 1, 2});
  const auto memory =
      try_on_gpu(bench, instruction("aten._scaled_dot_product_flash_attention_for_cpu.default",
                                    {tensor_arg(query, "query"), tensor_arg(query, "key"),
                                     tensor_arg(query, "value"), float_arg("dropout_p", 0)},
                                    {out, sums}));
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(base::exit_code(memory.status().kind()), 81);
}

// Kernels on tensor cores are the only ones that ask for more shared memory than every block has;
// in another process, where the driver refuses that.
struct Choice {
  const char* name;
  DType dtype;
  int64_t dim;
  Sizes strides;  // empty: elements lie in order
  double scale;
  const char* kernel;  // that was chosen; null: the one for all tensors
};
void PrintTo(const Choice& c, std::ostream* stream) { *stream << c.name; }
[[noreturn]] void end_with(const Choice& c) {
  setenv("DOUBLE_FAIL", "cuFuncSetAttribute:1:1", 1);
  KernelBench bench;
  const Sizes sizes = {1, 1, 2, c.dim};
  const int32_t query = bench.tensor(c.dtype, sizes, c.strides), out = bench.tensor(c.dtype, sizes),
                sums = bench.tensor(DType::F32, {1, 1, 2});
  const auto memory = try_on_gpu(
      bench,
      instruction("aten._scaled_dot_product_flash_attention_for_cpu.default",
                  {tensor_arg(query, "query"), tensor_arg(query, "key"), tensor_arg(query, "value"),
                   float_arg("dropout_p", 0), float_arg("scale", c.scale)},
                  {out, sums}));
  std::fputs(memory.status().to_string().c_str(), stderr);
  std::_Exit(memory.ok() ? 0 : base::exit_code(memory.status().kind()));
}
class CudaAttentionDeathTest : public ::testing::TestWithParam<Choice> {};
TEST_P(CudaAttentionDeathTest, TensorCoresTakeRowsOf16BitElements) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const char* const kernel = GetParam().kernel;
  EXPECT_EXIT(end_with(GetParam()), ::testing::ExitedWithCode(kernel ? 69 : 0),
              kernel ? kernel : "");
}
INSTANTIATE_TEST_SUITE_P(
    Cases, CudaAttentionDeathTest,
    ::testing::Values(
        Choice{"bf16", DType::BF16, 112, {}, 1, "'dc_tensor_attention_bf16_112'"},
        Choice{"f16", DType::F16, 128, {}, 1, "'dc_tensor_attention_f16_128'"},
        Choice{"apart", DType::BF16, 128, {136, 136, 136, 1}, 1, "'dc_tensor_attention_bf16_128'"},
        Choice{"f32", DType::F32, 64, {}, 1, nullptr},
        Choice{"odd_columns", DType::BF16, 72, {}, 1, nullptr},
        Choice{"wide", DType::BF16, 144, {}, 1, nullptr},
        Choice{"not_on_16_bytes", DType::BF16, 64, {68, 68, 68, 1}, 1, nullptr},
        Choice{"columns_apart", DType::BF16, 64, {256, 256, 128, 2}, 1, nullptr},
        Choice{"negative_scale", DType::BF16, 64, {}, -1, nullptr}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace dc::runtime
