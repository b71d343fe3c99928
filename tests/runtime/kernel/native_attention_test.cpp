// Attention and its gradients against plain loops in double precision: lengths around the blocks,
// causal, masks that broadcast, heads that share keys, any strides; and the small products behind
// them, whose bits do not depend on the instruction set.
#include <cmath>
#include <functional>

#include "runtime/kernel/native/attention/multiply.h"
#include "runtime/kernel/native/convert.h"
#include "src/base/attention_blocks.h"
#include "src/base/shape.h"
#include "tests/runtime/kernel/kernel_bench.h"

namespace dc::runtime {
namespace {

using base::DType;
using Sizes = std::vector<int64_t>;

struct Shape {
  int64_t batch, heads, key_heads, queries, keys, dim;
};

struct Case {
  const char* name;
  Shape shape;
  bool causal = false;
  Sizes mask = {};            // sizes; empty: none
  bool length_major = false;  // [batch, length, heads, dim] in memory
  double scale = 0;           // 0: the default
  DType dtype = DType::F32;
  bool hides_row = false;  // the mask hides all keys of query 0
};

const Case kCases[] = {
    {"one", {1, 1, 1, 1, 1, 1}},
    {"odd", {1, 2, 2, 3, 17, 5}},
    {"more_queries_than_keys", {1, 1, 1, 33, 7, 8}, true},
    {"causal", {2, 2, 2, 17, 17, 16}, true},
    {"causal_over_blocks", {1, 1, 1, 300, 300, 24}, true},
    {"over_blocks", {1, 1, 1, 97, 257, 8}},
    {"one_query", {1, 2, 2, 1, 255, 16}},
    {"scaled", {1, 1, 1, 5, 5, 4}, false, {}, false, 0.3},
    {"length_major", {2, 3, 3, 20, 20, 8}, true, {}, true},
    {"shared_keys", {2, 6, 2, 19, 19, 8}, true},
    {"mask", {2, 2, 2, 9, 11, 8}, false, {2, 1, 9, 11}},
    {"mask_of_keys", {2, 2, 2, 9, 300, 8}, false, {2, 1, 1, 300}},
    {"mask_of_all", {2, 2, 2, 9, 11, 8}, false, {9, 11}},
    {"hidden_row", {1, 2, 2, 9, 11, 8}, false, {9, 11}, false, 0, DType::F32, true},
    {"bf16", {1, 2, 2, 33, 33, 16}, true, {}, false, 0, DType::BF16},
    {"bf16_over_blocks", {1, 4, 2, 101, 301, 40}, true, {}, false, 0, DType::BF16},
    {"bf16_mask", {1, 2, 2, 33, 45, 72}, false, {1, 1, 33, 45}, true, 0, DType::BF16},
    {"f16_mask", {1, 2, 2, 33, 33, 16}, false, {1, 1, 33, 33}, true, 0, DType::F16},
};

class NativeAttention : public testing::TestWithParam<Case> {
 protected:
  const Case& c() const { return GetParam(); }
  double get(int32_t id, int64_t at) {
    const DType dtype = bench_.plan().tensors[static_cast<size_t>(id)].dtype;
    if (dtype == DType::F32) return bench_.data<float>(id)[at];
    if (dtype == DType::BF16)
      return kernel::native::widen(bench_.data<kernel::native::BF16>(id)[at]);
    return kernel::native::widen(bench_.data<kernel::native::F16>(id)[at]);
  }
  void set(int32_t id, int64_t at, float value) {
    const DType dtype = bench_.plan().tensors[static_cast<size_t>(id)].dtype;
    if (dtype == DType::F32) bench_.data<float>(id)[at] = value;
    if (dtype == DType::BF16)
      bench_.data<kernel::native::BF16>(id)[at] = kernel::native::narrow_bf16(value);
    if (dtype == DType::F16)
      bench_.data<kernel::native::F16>(id)[at] = kernel::native::narrow_f16(value);
  }
  int64_t place(int32_t id, Sizes index) {
    const plan::Tensor& tensor = bench_.plan().tensors[static_cast<size_t>(id)];
    index.erase(index.begin(), index.end() - static_cast<std::ptrdiff_t>(tensor.sizes.size()));
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d) {
      if (tensor.sizes[d] > 1) at += index[d] * tensor.strides[d];
    }
    return at;
  }
  double at(int32_t id, const Sizes& index) { return get(id, place(id, index)); }

  int32_t tensor(int64_t heads, int64_t length) {
    const Sizes sizes = {c().shape.batch, heads, length, c().shape.dim};
    Sizes strides;
    if (c().length_major) strides = {length * heads * sizes[3], sizes[3], heads * sizes[3], 1};
    return bench_.tensor(c().dtype, sizes, strides);
  }
  void fill(int32_t id) {
    const plan::Tensor& tensor = bench_.plan().tensors[static_cast<size_t>(id)];
    const int64_t extent = base::extent(tensor.sizes, tensor.strides);
    for (int64_t i = 0; i < extent; ++i) {
      seed_ = seed_ * 1664525 + 1013904223;
      set(id, i, static_cast<float>((static_cast<double>(seed_ >> 8) / (1 << 23) - 1)));
    }
  }
  int32_t filled(int64_t heads, int64_t length) {
    const int32_t id = tensor(heads, length);
    fill(id);
    return id;
  }

  void prepare() {
    const Shape& s = c().shape;
    query_ = filled(s.heads, s.queries);
    key_ = filled(s.key_heads, s.keys);
    value_ = filled(s.key_heads, s.keys);
    gradient_ = filled(s.heads, s.queries);
    if (c().mask.empty()) return;
    mask_ = bench_.tensor(c().dtype, c().mask);
    fill(mask_);
    for (int64_t k = 0; c().hides_row && k < s.keys; ++k)
      set(mask_, k, -std::numeric_limits<float>::infinity());
  }

  void run(plan::Instruction step) {
    step.args.push_back(float_arg("dropout_p", 0));
    step.args.push_back(int_arg("is_causal", c().causal ? 1 : 0));
    if (mask_ >= 0) step.args.push_back(tensor_arg(mask_, "attn_mask"));
    if (c().scale != 0) step.args.push_back(float_arg("scale", c().scale));
    auto provider = kernel::make_native_provider();
    const auto bytes = provider->measure_scratch(step, bench_.addresses());
    ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
    step.scratch = bench_.slice(*bytes);
    auto kernel = provider->prepare(step, bench_.addresses());
    ASSERT_TRUE(kernel.ok()) << kernel.status().to_string();
    for (int repeat = 0; repeat < 2; ++repeat)
      ASSERT_TRUE((*kernel)->launch(*device::cpu_device().make_stream()).ok());
  }
  void run_forward() {
    const Shape& s = c().shape;
    out_ = tensor(s.heads, s.queries);
    sums_ =
        bench_.tensor(DType::F32, {s.batch, s.heads, s.queries}, {s.queries * s.heads, 1, s.heads});
    run(instruction(
        "aten._scaled_dot_product_flash_attention_for_cpu.default",
        {tensor_arg(query_, "query"), tensor_arg(key_, "key"), tensor_arg(value_, "value")},
        {out_, sums_}));
  }
  void run_backward() {
    const Shape& s = c().shape;
    of_query_ = tensor(s.heads, s.queries);
    of_key_ = tensor(s.key_heads, s.keys);
    of_value_ = tensor(s.key_heads, s.keys);
    run(instruction(
        "aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
        {tensor_arg(gradient_, "grad_out"), tensor_arg(query_, "query"), tensor_arg(key_, "key"),
         tensor_arg(value_, "value"), tensor_arg(out_, "out"), tensor_arg(sums_, "logsumexp")},
        {of_query_, of_key_, of_value_}));
  }

  // Results and gradients of one head of queries, in double precision.
  struct Head {
    std::vector<double> out, sums, of_query, of_key, of_value;
  };
  Head reference(int64_t b, int64_t h) {
    const Shape& s = c().shape;
    const int64_t kh = h / (s.heads / s.key_heads);
    const double scale = c().scale != 0 ? c().scale : 1 / std::sqrt(static_cast<double>(s.dim));
    const auto area = [](int64_t x, int64_t y) { return static_cast<size_t>(x * y); };
    Head r{std::vector<double>(area(s.queries, s.dim)), std::vector<double>(area(s.queries, 1)),
           std::vector<double>(area(s.queries, s.dim)), std::vector<double>(area(s.keys, s.dim)),
           std::vector<double>(area(s.keys, s.dim))};
    for (int64_t i = 0; i < s.queries; ++i) {
      std::vector<double> p(static_cast<size_t>(s.keys), 0.0);
      double sum = 0;
      const int64_t seen = c().causal ? std::min(i + 1, s.keys) : s.keys;
      for (int64_t k = 0; k < seen; ++k) {
        double score = 0;
        for (int64_t d = 0; d < s.dim; ++d)
          score += at(query_, {b, h, i, d}) * at(key_, {b, kh, k, d});
        score *= scale;
        if (mask_ >= 0) score += at(mask_, {b, h, i, k});
        p[static_cast<size_t>(k)] = std::exp(score);
        sum += p[static_cast<size_t>(k)];
      }
      r.sums[static_cast<size_t>(i)] = std::log(sum);
      double delta = 0;
      for (double& each : p) each = sum == 0 ? 0 : each / sum;
      for (int64_t d = 0; d < s.dim; ++d) {
        double& out = r.out[static_cast<size_t>(i * s.dim + d)];
        for (int64_t k = 0; k < seen; ++k)
          out += p[static_cast<size_t>(k)] * at(value_, {b, kh, k, d});
        delta += out * at(gradient_, {b, h, i, d});
      }
      for (int64_t k = 0; k < seen; ++k) {
        double of_p = 0;
        for (int64_t d = 0; d < s.dim; ++d)
          of_p += at(gradient_, {b, h, i, d}) * at(value_, {b, kh, k, d});
        const double of_score = p[static_cast<size_t>(k)] * (of_p - delta) * scale;
        for (int64_t d = 0; d < s.dim; ++d) {
          r.of_value[static_cast<size_t>(k * s.dim + d)] +=
              p[static_cast<size_t>(k)] * at(gradient_, {b, h, i, d});
          r.of_key[static_cast<size_t>(k * s.dim + d)] += of_score * at(query_, {b, h, i, d});
          r.of_query[static_cast<size_t>(i * s.dim + d)] += of_score * at(key_, {b, kh, k, d});
        }
      }
    }
    return r;
  }

  double bound() const {
    return c().dtype == DType::F32 ? 5e-6 : c().dtype == DType::F16 ? 0x1p-8 : 0x1p-5;
  }
  void expect(int32_t id, int64_t b, int64_t h, const std::vector<double>& values,
              const char* what) {
    const int64_t dim = c().shape.dim;
    for (size_t i = 0; i < values.size(); ++i) {
      const auto place = static_cast<int64_t>(i);
      const double got = at(id, {b, h, place / dim, place % dim});
      ASSERT_NEAR(got, values[i], bound() * (1 + std::fabs(values[i])))
          << what << " " << b << " " << h << " " << i;
    }
  }

  KernelBench bench_;
  uint32_t seed_ = 1;
  int32_t query_ = -1, key_ = -1, value_ = -1, gradient_ = -1, mask_ = -1;
  int32_t out_ = -1, sums_ = -1, of_query_ = -1, of_key_ = -1, of_value_ = -1;
};

TEST_P(NativeAttention, AndItsGradientsAreThoseOfPlainLoops) {
  prepare();
  run_forward();
  run_backward();
  const Shape& s = c().shape;
  const int64_t group = s.heads / s.key_heads;
  for (int64_t b = 0; b < s.batch; ++b) {
    std::vector<double> of_key, of_value;
    for (int64_t h = 0; h < s.heads; ++h) {
      const Head head = reference(b, h);
      expect(out_, b, h, head.out, "result");
      expect(of_query_, b, h, head.of_query, "gradient of queries");
      for (int64_t i = 0; i < s.queries; ++i) {
        const double sum = at(sums_, {0, b, h, i}), wanted = head.sums[static_cast<size_t>(i)];
        if (std::isinf(wanted)) {
          EXPECT_EQ(sum, wanted);
        } else {
          EXPECT_NEAR(sum, wanted, 5e-6 * (1 + std::fabs(wanted)));
        }
      }
      if (h % group == 0) of_key.assign(head.of_key.size(), 0), of_value = of_key;
      for (size_t i = 0; i < of_key.size(); ++i) {
        of_key[i] += head.of_key[i];
        of_value[i] += head.of_value[i];
      }
      if (h % group + 1 < group) continue;
      expect(of_key_, b, h / group, of_key, "gradient of keys");
      expect(of_value_, b, h / group, of_value, "gradient of values");
    }
  }
}

// What is no number stays none, in its own row.
TEST_P(NativeAttention, KeepsWhatIsNoNumber) {
  prepare();
  set(query_, place(query_, {0, 0, 0, 0}), std::numeric_limits<float>::quiet_NaN());
  run_forward();
  EXPECT_TRUE(std::isnan(at(out_, {0, 0, 0, 0})));
  if (c().shape.queries > 1) {
    EXPECT_FALSE(std::isnan(at(out_, {0, 0, 1, 0})));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, NativeAttention, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(SmallProducts, HaveTheSameBitsOnEveryInstructionSet) {
  using kernel::native::SmallProduct;
  const auto random = [seed = uint32_t{7}]() mutable {
    seed = seed * 1664525 + 1013904223;
    return static_cast<float>(seed >> 8) / (1 << 23) - 1;
  };
  for (const auto& sizes : std::vector<std::array<int64_t, 3>>{{1, 1, 16},
                                                               {5, 7, 32},
                                                               {6, 64, 64},
                                                               {13, 33, 80},
                                                               {25, 9, 48},
                                                               {36, 31, 96},
                                                               {11, 3, 16},
                                                               {96, 64, 256},
                                                               {17, 0, 16}}) {
    const int64_t rows = sizes[0], depth = sizes[1], columns = sizes[2];
    // Without depth nothing is read, but there is memory, as in a kernel's scratch.
    const int64_t stored = std::max<int64_t>(depth, 1);
    std::vector<float> a(static_cast<size_t>(rows * stored)),
        b(static_cast<size_t>(stored * columns));
    std::generate(a.begin(), a.end(), random);
    std::generate(b.begin(), b.end(), random);
    for (const bool adds : {false, true}) {
      for (const bool across : {false, true}) {
        std::vector<float> plain(static_cast<size_t>(rows * columns), 0.5f), other = plain,
                                                                             v3 = plain;
        const auto product = [&](std::vector<float>& c) {
          return SmallProduct{c.data(),
                              columns,
                              a.data(),
                              across ? 1 : depth,
                              across ? rows : 1,
                              b.data(),
                              columns,
                              rows,
                              depth,
                              columns,
                              adds};
        };
        kernel::native::multiply_plain(product(plain));
        kernel::native::multiply(product(other));
        EXPECT_EQ(std::memcmp(plain.data(), other.data(), 4 * plain.size()), 0)
            << rows << " " << depth << " " << columns;
#if defined(__x86_64__)
        if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) continue;
        kernel::native::multiply_v3(product(v3));
        EXPECT_EQ(std::memcmp(plain.data(), v3.data(), 4 * plain.size()), 0);
#endif
        double sum = adds ? 0.5 : 0;
        for (int64_t k = 0; k < depth; ++k)
          sum += double{a[static_cast<size_t>(across ? k * rows : k)]} *
                 double{b[static_cast<size_t>(k * columns)]};
        EXPECT_NEAR(plain[0], sum, 1e-5);
      }
    }
  }
}

// Numbers of bf16, some of them zero, tiny or large.
float some_bf16(uint32_t& seed) {
  seed = seed * 1664525 + 1013904223;
  const float number = static_cast<float>(seed >> 8) / (1 << 23) - 1;
  const float scales[] = {1, 1, 1, 1, 0, 1e-20f, 1e-30f, 1e10f, -0.0f, 1e-40f};
  return kernel::native::widen(
      kernel::native::narrow_bf16(number * scales[(seed >> 4) % std::size(scales)]));
}

TEST(SmallProductsOfBf16, HaveTheSameBitsOnEveryInstructionSet) {
  using kernel::native::SmallProduct;
  uint32_t seed = 11;
  bool amx_ran = false;
  for (const auto& sizes : std::vector<std::array<int64_t, 3>>{{1, 1, 16},
                                                               {5, 7, 32},
                                                               {16, 32, 16},
                                                               {48, 64, 256},
                                                               {17, 31, 80},
                                                               {33, 95, 48},
                                                               {36, 31, 96},
                                                               {48, 256, 64},
                                                               {256, 48, 128},
                                                               {20, 600, 272},
                                                               {3, 288, 16},
                                                               {17, 0, 16}}) {
    const int64_t rows = sizes[0], depth = sizes[1], columns = sizes[2];
    const int64_t stored = std::max<int64_t>(depth, 1);
    std::vector<float> a(static_cast<size_t>(rows * stored)),
        b(static_cast<size_t>(stored * columns)), c(static_cast<size_t>(rows * columns));
    for (auto* matrix : {&a, &b, &c})
      std::generate(matrix->begin(), matrix->end(), [&] { return some_bf16(seed); });
    for (const bool adds : {false, true}) {
      for (const bool across : {false, true}) {
        const auto result = [&](void (*multiply)(const SmallProduct&)) {
          std::vector<float> of = c;
          multiply({of.data(), columns, a.data(), across ? 1 : depth, across ? rows : 1, b.data(),
                    columns, rows, depth, columns, adds});
          return of;
        };
        const auto same = [](const std::vector<float>& x, const std::vector<float>& y) {
          return std::memcmp(x.data(), y.data(), 4 * x.size()) == 0;
        };
        const std::vector<float> chosen = result(kernel::native::multiply_bf16);
        const kernel::native::FlushToZero flush;
        const std::vector<float> plain = result(kernel::native::multiply_bf16_plain);
        const std::string what = std::to_string(rows) + " " + std::to_string(depth) + " " +
                                 std::to_string(columns) + (adds ? " adds" : "");
        EXPECT_TRUE(same(plain, chosen)) << what;
#if defined(__x86_64__)
        if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
          EXPECT_TRUE(same(plain, result(kernel::native::multiply_bf16_v3))) << what;
        }
        if (__builtin_cpu_supports("avx512f")) {
          EXPECT_TRUE(same(plain, result(kernel::native::multiply_bf16_v4))) << what;
        }
#endif
        amx_ran = amx_ran || kernel::native::has_amx();
        for (int64_t j = 0; j < columns; ++j) {
          double sum = adds ? double{c[static_cast<size_t>(j)]} : 0, size = std::abs(sum);
          for (int64_t k = 0; k < depth; ++k) {
            const double product = double{a[static_cast<size_t>(across ? k * rows : k)]} *
                                   double{b[static_cast<size_t>(k * columns + j)]};
            sum += product;
            size += std::abs(product);
          }
          EXPECT_NEAR(plain[static_cast<size_t>(j)], sum, size * 1e-5 + 1e-35) << what;
        }
      }
    }
  }
  if (!amx_ran) std::cout << "this CPU has no AMX: its products were not compared\n";
}

}  // namespace
}  // namespace dc::runtime
