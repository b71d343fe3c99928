// After a warm-up, launching aten kernels allocates nothing large, and native kernels nothing at
// all. The malloc family is replaced to see it.
#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "src/base/step_scalars.h"
#include "tests/runtime/kernel/aten_cases.h"

// The C library's own, by the names that it exports.
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier)
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
// NOLINTEND(bugprone-reserved-identifier)
}

namespace {
std::atomic<bool> counting{false};
std::atomic<int64_t> calls{0}, largest{0};

void note(size_t bytes) {
  if (!counting.load(std::memory_order_relaxed)) return;
  ++calls;
  int64_t seen = largest;
  while (static_cast<int64_t>(bytes) > seen &&
         !largest.compare_exchange_weak(seen, static_cast<int64_t>(bytes))) {
  }
}
}  // namespace

extern "C" {
void* malloc(size_t bytes) {
  note(bytes);
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  note(count * bytes);
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, size_t bytes) {
  note(bytes);
  return __libc_realloc(old, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  note(bytes);
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  note(bytes);
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** result, size_t alignment, size_t bytes) {
  note(bytes);
  *result = __libc_memalign(alignment, bytes);
  return *result == nullptr ? ENOMEM : 0;
}
}

namespace dc::runtime {
namespace {

using base::DType;

struct Count {
  int64_t calls, largest;
};

Count count_launches(kernel::Kernel& kernel, int times) {
  const auto stream = device::cpu_device().make_stream();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(kernel.launch(*stream).ok());
  calls = 0;
  largest = 0;
  counting = true;
  bool ok = true;
  for (int i = 0; i < times; ++i) ok = kernel.launch(*stream).ok() && ok;
  counting = false;
  EXPECT_TRUE(ok);
  return {calls, largest};
}

TEST(Allocations, TheCounterSeesTheHeap) {
  counting = true;
  largest = 0;
  void* volatile block = malloc(123456);
  counting = false;
  free(block);
  EXPECT_EQ(largest, 123456);
}

Count count_case(const std::string& name) {
  KernelBench bench;
  auto opened = kernel::open_aten_provider(1);
  EXPECT_TRUE(opened.ok());
  kernel::KernelProvider& provider = **opened;
  plan::Instruction step = place(bench, aten_case(name));
  auto bytes = provider.measure_scratch(step, bench.addresses());
  EXPECT_TRUE(bytes.ok());
  if (*bytes > 0) step.scratch = bench.slice(*bytes);
  auto kernel = provider.prepare(step, bench.addresses());
  EXPECT_TRUE(kernel.ok());
  const Count count = count_launches(**kernel, 10);
  EXPECT_EQ(provider.repairs(), 0);
  printf("  %-28s %4ld allocations per launch, largest %ld bytes\n", name.c_str(),
         static_cast<long>(count.calls / 10), static_cast<long>(count.largest));
  return count;
}

TEST(Allocations, Fp32OpsMakeNoneAbove4KiB) {
  for (const AtenCase& test : aten_cases()) {
    if (test.name.find("bf16") != std::string::npos || test.op.find("conv") != std::string::npos)
      continue;
    EXPECT_LE(count_case(test.name).largest, 4096) << test.name;
  }
}

// Shapes of a small Llama: large enough for libtorch's and MKL's blocked code.
TEST(Allocations, LargerShapesMakeNoneAbove4KiB) {
  KernelBench bench;
  auto opened = kernel::open_aten_provider(1);
  ASSERT_TRUE(opened.ok());
  kernel::KernelProvider& provider = **opened;
  const auto f32 = [&](const KernelBench::Sizes& sizes, const KernelBench::Sizes& strides = {}) {
    const int32_t id = bench.tensor(DType::F32, sizes, strides);
    std::memset(bench.data<uint8_t>(id), 0, KernelBench::bytes(bench.plan().tensors[id]));
    return id;
  };
  const KernelBench::Sizes heads = {2, 10, 256, 32}, heads_strides = {81920, 32, 320, 1};
  const int32_t hidden = f32({512, 320}), vocabulary = f32({320, 2048}), logits = f32({512, 2048});
  const int32_t q = f32(heads, heads_strides), lse = f32({2, 10, 256}, {2560, 1, 10});
  const std::string flash = "aten._scaled_dot_product_flash_attention_for_cpu";
  const auto q_as = [&](const char* name) { return tensor_arg(q, name); };
  const plan::Arg causal = int_arg("is_causal", 1);
  std::vector<plan::Instruction> steps = {
      instruction("aten.mm.default", {tensor_arg(hidden, "self"), tensor_arg(vocabulary, "mat2")},
                  {f32({512, 2048})}),
      instruction("aten._log_softmax.default",
                  {tensor_arg(logits, "self"), int_arg("dim", 1), int_arg("half_to_float", 0)},
                  {f32({512, 2048})}),
      instruction("aten.mul.Tensor", {tensor_arg(logits, "self"), float_arg("other", 0.5)},
                  {f32({512, 2048})}),
      instruction(flash + ".default", {q_as("query"), q_as("key"), q_as("value"), causal},
                  {f32(heads, heads_strides), f32({2, 10, 256}, {2560, 1, 10})}),
      instruction(
          flash + "_backward.default",
          {q_as("grad_out"), q_as("query"), q_as("key"), q_as("value"), q_as("out"),
           tensor_arg(lse, "logsumexp"), float_arg("dropout_p", 0), causal},
          {f32(heads, heads_strides), f32(heads, heads_strides), f32(heads, heads_strides)}),
  };
  for (plan::Instruction& step : steps) {
    auto bytes = provider.measure_scratch(step, bench.addresses());
    ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
    if (*bytes > 0) step.scratch = bench.slice(*bytes);
    auto kernel = provider.prepare(step, bench.addresses());
    ASSERT_TRUE(kernel.ok()) << kernel.status().to_string();
    EXPECT_LE(count_launches(**kernel, 5).largest, 4096) << step.op;
  }
  EXPECT_EQ(provider.repairs(), 0);
}

TEST(Allocations, OneDnnOpsStayBelow64KiB) {
  for (const char* name :
       {"mm_bf16", "gelu_bf16", "flash_32_bf16", "convolution", "convolution_backward"}) {
    EXPECT_LT(count_case(name).largest, 64 << 10) << name;
  }
}

TEST(Allocations, NativeKernelsMakeNone) {
  KernelBench bench;
  auto provider = kernel::make_native_provider();
  const int64_t n = 5000, scalars_size = base::kScalarFinite + 1,
                hyperparameters_size = base::kHyperGroups + base::kHyperPerGroup;
  const auto f32 = [&] {
    return tensor_arg(bench.filled(DType::F32, {n}, std::vector<float>(n, 1)));
  };
  const auto f64 = [&](int64_t size) {
    return tensor_arg(bench.filled(DType::F64, {size}, std::vector<double>(size, 0.5)));
  };
  const auto table = tensor_arg(bench.filled(DType::F64, {1, 3}, std::vector<double>(3, 1)));
  const auto rng = tensor_arg(bench.filled<uint64_t>(DType::I64, {4}, {1, 1, 0, 0}));
  const auto y = bench.tensor(DType::F32, {n}), mask = bench.tensor(DType::Bool, {n}),
             half = bench.tensor(DType::BF16, {n});
  const auto logits = [&] {
    return tensor_arg(bench.filled(DType::F32, {5, 1000}, std::vector<float>(5000, 1)));
  };
  const auto row = [&] {
    return tensor_arg(bench.filled(DType::F32, {5}, std::vector<float>(5, 1)));
  };
  const auto classes = tensor_arg(bench.filled<int64_t>(DType::I64, {5}, {1, 2, 3, 4, 5}));
  const auto number = bench.tensor(DType::F32, {}), total = bench.tensor(DType::F32, {}),
             largest = bench.tensor(DType::F32, {5}), log_of_sum = bench.tensor(DType::F32, {5});
  const plan::Instruction steps[] = {
      instruction("dc.zero", {f32()}),
      instruction("dc.copy", {f32(), f32()}),
      instruction("dc.accumulate", {f32(), f32()}),
      instruction("dc.cast", {f32()}, {half}),
      instruction("dc.dropout", {f32(), rng, float_arg("p", 0.1), int_arg("op_id", 1)}, {y, mask}),
      instruction("dc.cross_entropy",
                  {logits(), classes, int_arg("reduction", 1), int_arg("ignored", -100)},
                  {number, total, largest, log_of_sum}),
      instruction("dc.cross_entropy_backward",
                  {logits(), classes, tensor_arg(bench.filled<float>(DType::F32, {}, {1})),
                   tensor_arg(bench.filled<float>(DType::F32, {}, {1})), row(), row(),
                   int_arg("reduction", 1), int_arg("ignored", -100)}),
      instruction("dc.square_sum",
                  {table, f32(), f64(hyperparameters_size), int_arg("param", 0),
                   int_arg("shard", n), int_arg("elements", n), int_arg("whole", 1)}),
      instruction("dc.add_loss", {f64(1), tensor_arg(bench.filled<float>(DType::F32, {}, {1}))}),
      instruction("dc.clip_and_check",
                  {f64(scalars_size), table, f64(hyperparameters_size), int_arg("clip", 1)}),
      instruction("dc.adamw",
                  {f32(), f32(), f32(), f32(), f64(scalars_size), f64(hyperparameters_size),
                   int_arg("param", 0), int_arg("group", 0), int_arg("clip", 1)}),
      instruction("dc.sgd", {f32(), f32(), f32(), f64(scalars_size), f64(hyperparameters_size),
                             int_arg("param", 0), int_arg("group", 0), int_arg("clip", 1),
                             int_arg("momentum", 1), int_arg("nesterov", 1)}),
  };
  for (const plan::Instruction& step : steps) {
    auto kernel = provider->prepare(step, bench.addresses());
    ASSERT_TRUE(kernel.ok()) << kernel.status().to_string();
    EXPECT_EQ(count_launches(**kernel, 10).calls, 0) << step.op;
  }
}

}  // namespace
}  // namespace dc::runtime
