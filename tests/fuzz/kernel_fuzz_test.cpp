// Drives the fuzz target without libFuzzer: each row of its table as it is, then changed by random
// bytes from fixed seeds.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "runtime/verify/effects.h"
#include "src/ir/native_ops.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/kernel_memory.h"
#include "tests/fuzz/kernel_run.h"
#include "tests/fuzz/mutation_runs.h"

namespace dc::fuzz {
namespace {

constexpr size_t kBytes = 40;
constexpr uint32_t kRounds = 500;  // of each row

TEST(KernelFuzz, EveryNativeKernelHasARow) {
  std::set<std::string_view> rows;
  for (const KernelRow& row : kernel_rows()) rows.insert(row.op);
  for (const ir::NativeOp& op : ir::native_ops())
    EXPECT_TRUE(rows.contains(op.overload)) << op.overload;
  for (const auto& kernel : runtime::verify::native_kernels())
    EXPECT_TRUE(rows.contains(kernel.op)) << kernel.op;
}

TEST(KernelFuzz, RowsRunAsTheyAre) {
  for (const KernelRow& row : kernel_rows()) {
    KernelInstruction instruction = parse(row);
    ASSERT_TRUE(fit(instruction, KernelMemory::kWindow));
    Choices choices({});
    const KernelOutcome outcome = run_kernel(instruction, choices);
    // Products are in a plug-in, which a build without oneDNN lacks.
    if (!DC_WITH_ONEDNN && outcome.error.find("DC6135") != std::string::npos) continue;
    EXPECT_TRUE(outcome.launched && !outcome.failed) << describe(instruction) << outcome.error;
  }
}

// Tensors of no rows and expanded weights have no memory to speak of, but a kernel may take some
// for each element of a row.
TEST(KernelFuzz, RowsOfTooManyElementsAreRefused) {
  for (const KernelRow& row : kernel_rows()) {
    if (row.op != "aten.native_layer_norm.default" && row.op != "aten._fused_rms_norm.default")
      continue;
    KernelInstruction instruction = parse(row);
    for (KernelTensor& tensor : instruction.tensors) {
      if (tensor.sizes.empty() || tensor.sizes.back() != 8) continue;
      tensor.sizes.back() = int64_t{1} << 31;
      tensor.strides.back() = 0;
      if (tensor.sizes.size() == 2) tensor.sizes.front() = 0;
    }
    Choices choices({});
    const KernelOutcome outcome = run_kernel(instruction, choices);
    EXPECT_FALSE(outcome.prepared);
    EXPECT_NE(outcome.error.find("a row is too long"), std::string::npos) << outcome.error;
  }
}

// A fuzz target that has nothing accepted finds nothing.
TEST(KernelFuzz, ManyChangedInstructionsAreLaunched) {
  std::mt19937 random(11);
  int launched = 0, refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<uint8_t> bytes(kBytes);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    const KernelOutcome outcome = run_mutated(bytes);
    launched += outcome.launched ? 1 : 0;
    refused += outcome.prepared ? 0 : 1;
  }
  EXPECT_GT(launched, 600);
  EXPECT_GT(refused, 300);
}

TEST(KernelFuzz, ChangedInstructionsTouchOnlyTheirTensors) {
  for (const uint32_t rounds : {uint32_t{1}, kRounds}) {
    for (size_t row = 0; row < kernel_rows().size(); ++row) {
      const std::string head = {static_cast<char>(row >> 8), static_cast<char>(row & 0xff)};
      run_random_tails(head, kBytes, rounds);
    }
  }
}

}  // namespace
}  // namespace dc::fuzz
