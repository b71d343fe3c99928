// The aten provider against PyTorch's own results, on planned addresses full of NaN.
#include <cstdlib>
#include <thread>

#include "tests/runtime/kernel/aten_cases.h"

namespace dc::runtime {
namespace {

using base::DType;
using base::ErrorKind;

std::unique_ptr<kernel::KernelProvider> open_provider() {
  auto provider = kernel::open_aten_provider(1);
  if (!provider.ok()) {
    ADD_FAILURE() << provider.status().to_string();
    std::abort();
  }
  return std::move(provider).value();
}

void give_scratch(KernelBench& bench, kernel::KernelProvider& provider, plan::Instruction& step) {
  auto bytes = provider.measure_scratch(step, bench.addresses());
  ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
  if (*bytes > 0) step.scratch = bench.slice(*bytes);
}

class AtenCases : public ::testing::TestWithParam<AtenCase> {};

TEST_P(AtenCases, GivePyTorchsNumbersOnPlannedAddresses) {
  const AtenCase& test = GetParam();
  // PyTorch computes this one with oneDNN, the provider without.
  const bool same_code = test.op.find("gelu") == std::string::npos || test.name == "gelu_bf16";
  KernelBench bench;
  auto provider = open_provider();
  plan::Instruction step = place(bench, test);
  give_scratch(bench, *provider, step);
  const int32_t guard = bench.filled<uint64_t>(DType::I64, {8}, std::vector<uint64_t>(8, 0x5a5a));
  auto kernel = provider->prepare(step, bench.addresses());
  ASSERT_TRUE(kernel.ok()) << kernel.status().to_string();
  for (int repeat = 0; repeat < 3; ++repeat) {
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      if (step.outputs[i] < 0) continue;
      std::memset(bench.data<uint8_t>(step.outputs[i]), 0xff, test.results[i].bytes.size());
    }
    const auto status = (*kernel)->launch(*device::cpu_device().make_stream());
    ASSERT_TRUE(status.ok()) << status.to_string();
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      if (step.outputs[i] < 0) continue;
      const double distance = difference(bench, step.outputs[i], test.results[i]);
      EXPECT_LE(distance, same_code ? 0 : 2e-6) << "result " << i;
    }
  }
  EXPECT_EQ(provider->repairs(), 0);
  EXPECT_EQ(bench.values<uint64_t>(guard), std::vector<uint64_t>(8, 0x5a5a));
}

INSTANTIATE_TEST_SUITE_P(All, AtenCases, ::testing::ValuesIn(aten_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(AtenProvider, SaysHowMuchScratchIsMissing) {
  KernelBench bench;
  auto provider = open_provider();
  plan::Instruction step = place(bench, aten_case("flash_16_f32"));
  auto bytes = provider->measure_scratch(step, bench.addresses());
  ASSERT_TRUE(bytes.ok());
  ASSERT_GT(*bytes, 64);
  step.scratch = bench.slice(*bytes - 64);
  auto kernel = provider->prepare(step, bench.addresses());
  ASSERT_FALSE(kernel.ok());
  EXPECT_EQ(kernel.status().kind(), ErrorKind::OutOfMemory);
  for (const std::string& part : {step.op, std::to_string(*bytes), std::to_string(*bytes - 64),
                                  std::string("profile the model")}) {
    EXPECT_NE(kernel.status().sentence().find(part), std::string::npos)
        << kernel.status().sentence();
  }
}

TEST(AtenProvider, TakesMissingScratchBeforeTheFirstKernel) {
  for (const int64_t planned : {int64_t{0}, int64_t{64}}) {
    KernelBench bench;
    auto provider = open_provider();
    const AtenCase& test = aten_case("convolution_backward");
    plan::Instruction step = place(bench, test);
    const int64_t needed = provider->measure_scratch(step, bench.addresses()).value();
    ASSERT_GT(needed, 64);
    if (planned > 0) step.scratch = bench.slice(planned);
    step.kind = plan::InstructionKind::Kernel;
    step.provider = plan::Provider::Aten;
    bench.plan().programs.push_back({"step", {step}});
    const auto missing = provider->take_missing_scratch(bench.addresses());
    ASSERT_TRUE(missing.ok()) << missing.status().to_string();
    EXPECT_EQ(missing->op, step.op);
    EXPECT_EQ(missing->bytes, needed);
    EXPECT_EQ(missing->needed, needed);
    EXPECT_EQ(missing->planned, planned);
    auto kernel = provider->prepare(step, bench.addresses());
    ASSERT_TRUE(kernel.ok()) << kernel.status().to_string();
    ASSERT_TRUE((*kernel)->launch(*device::cpu_device().make_stream()).ok());
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      if (step.outputs[i] < 0) continue;
      EXPECT_EQ(difference(bench, step.outputs[i], test.results[i]), 0);
    }
    EXPECT_EQ(provider->repairs(), 0);
  }
}

base::Status refusal(const plan::Instruction& step, KernelBench& bench) {
  auto kernel = open_provider()->prepare(step, bench.addresses());
  return kernel.ok() ? base::ok_status() : std::move(kernel).status();
}

TEST(AtenProvider, RefusesOtherSizesAndTypes) {
  const AtenCase& test = aten_case("mm");
  for (const auto& [part, sizes, dtype] :
       {std::tuple{"sizes", std::vector<int64_t>{6, 23}, DType::F32},
        std::tuple{"element type", std::vector<int64_t>{6, 24}, DType::F64}}) {
    KernelBench bench;
    plan::Instruction step = place(bench, test);
    step.outputs[0] = bench.tensor(dtype, sizes);
    const auto status = refusal(step, bench);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.kind(), ErrorKind::Unsupported);
    EXPECT_NE(status.sentence().find("aten.mm.default"), std::string::npos);
    EXPECT_NE(status.sentence().find(part), std::string::npos) << status.sentence();
  }
}

TEST(AtenProvider, MakesAResultInScratchWhereThePlanWantsAnotherOrder) {
  const AtenCase& test = aten_case("mm");
  KernelBench bench;
  auto provider = open_provider();
  plan::Instruction step = place(bench, test);
  const int32_t rows = step.outputs[0], columns = bench.tensor(DType::F32, {6, 24}, {1, 6});
  give_scratch(bench, *provider, step);
  ASSERT_TRUE((*provider->prepare(step, bench.addresses()))
                  ->launch(*device::cpu_device().make_stream())
                  .ok());
  step.outputs[0] = columns;
  give_scratch(bench, *provider, step);
  EXPECT_GE(bench.plan().slices[step.scratch].bytes, 6 * 24 * 4);
  ASSERT_TRUE((*provider->prepare(step, bench.addresses()))
                  ->launch(*device::cpu_device().make_stream())
                  .ok());
  for (int i = 0; i < 6; ++i) {
    for (int j = 0; j < 24; ++j)
      ASSERT_EQ(bench.data<float>(columns)[j * 6 + i], bench.data<float>(rows)[i * 24 + j]);
  }
  EXPECT_EQ(provider->repairs(), 0);
}

TEST(AtenProvider, RefusesWhatItCannotRun) {
  KernelBench bench;
  const int32_t x = bench.tensor(DType::F32, {4}), y = bench.tensor(DType::F32, {4});
  const auto self = [&] { return tensor_arg(x, "self"); };
  const std::pair<plan::Instruction, const char*> cases[] = {
      {instruction("aten.no_such_op.default", {self()}, {y}), "unknown"},
      {instruction("mm", {self()}, {y}), "overload"},
      {instruction("aten.relu_.default", {self()}, {y}), "changes its arguments"},
      {instruction("aten.relu.default", {}, {y}), "'self' is missing"},
      {instruction("aten.relu.default", {self(), int_arg("extra", 1)}, {y}), "schema"},
      {instruction("aten.relu.default", {tensor_arg(x, "self")}, {y, y}), "values"},
      {instruction("aten.mm.default", {self(), tensor_arg(x, "mat2")}, {y}), "aten.mm.default"},
  };
  for (const auto& [step, part] : cases) {
    const auto status = refusal(step, bench);
    ASSERT_FALSE(status.ok()) << part;
    EXPECT_EQ(status.kind(), ErrorKind::Unsupported);
    EXPECT_NE(status.sentence().find(part), std::string::npos) << status.sentence();
  }
}

TEST(AtenProvider, CopiesAndCountsAResultThatLandsElsewhere) {
  // contiguous() of a contiguous tensor returns the tensor itself.
  KernelBench bench;
  auto provider = open_provider();
  const int32_t x = bench.filled<float>(DType::F32, {3}, {1, 2, 3}),
                y = bench.tensor(DType::F32, {3});
  const auto step = instruction("aten.contiguous.default", {tensor_arg(x, "self")}, {y});
  auto kernel = provider->prepare(step, bench.addresses());
  ASSERT_TRUE(kernel.ok()) << kernel.status().to_string();
  ASSERT_TRUE((*kernel)->launch(*device::cpu_device().make_stream()).ok());
  EXPECT_EQ(bench.values<float>(y), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(provider->repairs(), 1);
}

TEST(AtenProvider, AnIndexOutOfRangeIsAnErrorNotACrash) {
  KernelBench bench;
  auto provider = open_provider();
  const int32_t weight = bench.tensor(DType::F32, {4, 2}),
                index = bench.filled<int64_t>(DType::I64, {1}, {9});
  const int32_t y = bench.tensor(DType::F32, {1, 2});
  auto step = instruction("aten.embedding.default",
                          {tensor_arg(weight, "weight"), tensor_arg(index, "indices")}, {y});
  give_scratch(bench, *provider, step);
  auto kernel = provider->prepare(step, bench.addresses());
  ASSERT_TRUE(kernel.ok()) << kernel.status().to_string();
  const auto status = (*kernel)->launch(*device::cpu_device().make_stream());
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.sentence().find("aten.embedding.default"), std::string::npos);
}

TEST(AtenProvider, RanksMayBeThreads) {
  const std::vector<std::string> names = {"mm_large", "mm_bf16", "gelu", "flash_backward_48_f32",
                                          "convolution"};
  std::vector<std::vector<uint8_t>> first(names.size());
  std::vector<std::thread> ranks;
  ranks.reserve(4);
  std::atomic<int> differences{0}, failures{0};
  for (int rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&] {
      KernelBench bench;
      auto provider = open_provider();
      for (int round = 0; round < 3; ++round) {
        for (const std::string& name : names) {
          const AtenCase& test = aten_case(name);
          plan::Instruction step = place(bench, test);
          give_scratch(bench, *provider, step);
          auto kernel = provider->prepare(step, bench.addresses());
          for (int repeat = 0; repeat < 20; ++repeat) {
            if (!kernel.ok() || !(*kernel)->launch(*device::cpu_device().make_stream()).ok())
              ++failures;
            for (size_t i = 0; i < step.outputs.size(); ++i) {
              if (step.outputs[i] < 0) continue;
              if (difference(bench, step.outputs[i], test.results[i]) > (name == "gelu" ? 2e-6 : 0))
                ++differences;
            }
          }
        }
      }
      if (provider->repairs() != 0) ++differences;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(differences, 0);
}

TEST(AtenPlugin, AMissingPluginIsUnavailableAndSaysWhere) {
  setenv("DCRUN_PLUGIN_DIR", "/nonexistent", 1);
  auto provider = kernel::open_aten_provider(1);
  unsetenv("DCRUN_PLUGIN_DIR");
  ASSERT_FALSE(provider.ok());
  EXPECT_EQ(provider.status().kind(), ErrorKind::Unavailable);
  EXPECT_NE(provider.status().sentence().find("/nonexistent/libdcrun_aten.so"), std::string::npos);
}

}  // namespace
}  // namespace dc::runtime
