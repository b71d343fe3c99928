// What the verifier believes of ATen: operators in plans read their operands and write their
// results, and those that write an operand are known by name.
#include <fstream>
#include <set>

#include "runtime/verify/effects.h"
#include "tests/runtime/kernel/aten_cases.h"

namespace dc::runtime {
namespace {

// By its schema each of them leaves its operands alone; the verifier refuses them nevertheless.
// All but the last update running statistics, which no schema says.
const std::set<std::string> kWritersWithoutMark = {"aten.native_batch_norm.default",
                                                   "aten.batch_norm.default",
                                                   "aten.instance_norm.default",
                                                   "aten.cudnn_batch_norm.default",
                                                   "aten.miopen_batch_norm.default",
                                                   "aten._batch_norm_impl_index.default",
                                                   "aten._no_grad_embedding_renorm_.default"};

TEST(AtenEffects, TheVerifierKnowsEveryOverloadThatWritesAnOperand) {
  std::ifstream file(DC_ATEN_SCHEMAS);
  ASSERT_TRUE(file.good()) << DC_ATEN_SCHEMAS;
  std::string overload;
  bool marked = false;
  int writers = 0, others = 0;
  while (file >> overload >> marked) {
    const bool writes = marked || kWritersWithoutMark.contains(overload);
    EXPECT_EQ(verify::writes_operands(overload), writes) << overload;
    ++(writes ? writers : others);
  }
  EXPECT_GT(writers, 1000);
  EXPECT_GT(others, 1000);
}

class AtenOperands : public ::testing::TestWithParam<AtenCase> {};

// The whole arena before and after, but for results and scratch.
TEST_P(AtenOperands, AreLeftAlone) {
  const AtenCase& test = GetParam();
  EXPECT_FALSE(verify::writes_operands(test.op));
  KernelBench bench;
  auto provider = kernel::open_aten_provider(1);
  ASSERT_TRUE(provider.ok()) << provider.status().to_string();
  plan::Instruction step = place(bench, test);
  auto scratch = (*provider)->measure_scratch(step, bench.addresses());
  ASSERT_TRUE(scratch.ok()) << scratch.status().to_string();
  if (*scratch > 0) step.scratch = bench.slice(*scratch);
  std::set<int32_t> written = {step.scratch};
  for (int32_t id : step.outputs) {
    if (id >= 0) written.insert(bench.plan().tensors[static_cast<size_t>(id)].slice);
  }
  const int32_t end = bench.slice(64);
  const auto bytes = [&] {
    std::vector<std::vector<std::byte>> all;
    for (int32_t id = 0; id <= end; ++id) {
      const std::byte* start = bench.addresses().slice(id);
      const int64_t size = bench.plan().slices[static_cast<size_t>(id)].bytes;
      all.emplace_back(start, start + (written.contains(id) ? 0 : size));
    }
    return all;
  };
  const auto before = bytes();
  auto kernel = (*provider)->prepare(step, bench.addresses());
  ASSERT_TRUE(kernel.ok()) << kernel.status().to_string();
  ASSERT_TRUE((*kernel)->launch(*device::cpu_device().make_stream()).ok());
  EXPECT_TRUE(bytes() == before);
}

INSTANTIATE_TEST_SUITE_P(All, AtenOperands, ::testing::ValuesIn(aten_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace dc::runtime
