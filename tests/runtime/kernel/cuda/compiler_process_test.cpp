// Kernels that several processes compile, on the double of NVRTC (tests/double).
#include "runtime/kernel/cuda/compiler_process.h"

#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/kernel/cuda/kernel_compiler.h"
#include "tests/runtime/kernel/cuda/sample_kernel.h"

namespace dc::runtime::kernel::cuda {
namespace {

constexpr int kArchitecture = 90, kDriver = 13000;

// Processes that this one has started and that have not ended.
std::vector<pid_t> children() {
  std::vector<pid_t> found;
  const std::string self = std::to_string(getpid());
  std::ifstream file("/proc/self/task/" + self + "/children");
  for (pid_t child = 0; file >> child;) found.push_back(child);
  return found;
}

TEST(CompilerProcess, CompilesOneKernelAfterTheOther) {
  const auto process = CompilerProcess::start();
  ASSERT_NE(process, nullptr);
  EXPECT_EQ(children().size(), 1U);
  for (int i = 0; i < 2; ++i)
    EXPECT_FALSE(process->compile(sample(std::to_string(i)), kArchitecture, kDriver).empty());
}

TEST(CompilerProcess, SaysNothingOfWhatDoesNotCompile) {
  const auto process = CompilerProcess::start();
  ASSERT_NE(process, nullptr);
  EXPECT_EQ(process->compile(sample("no_such_name"), kArchitecture, kDriver), "");
  EXPECT_EQ(process->compile(sample("1"), kArchitecture, 12080), "");  // no NVRTC for that driver
  EXPECT_FALSE(process->compile(sample("1"), kArchitecture, kDriver).empty());
}

TEST(CompilerProcess, OneThatIsKilledCompilesNothing) {
  const auto process = CompilerProcess::start();
  ASSERT_NE(process, nullptr);
  kill(children().at(0), SIGKILL);
  EXPECT_EQ(process->compile(sample("1"), kArchitecture, kDriver), "");
  EXPECT_EQ(process->compile(sample("1"), kArchitecture, kDriver), "");
}

// While another thread compiles here.
TEST(KernelCompiler, LetsProcessesCompileWhatWouldWait) {
  auto nvrtc = Nvrtc::open(kDriver);
  ASSERT_TRUE(nvrtc.ok());
  KernelCompiler compiler(*nvrtc, kArchitecture, kDriver, "");
  std::vector<std::string> codes(6);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < codes.size(); ++i)
    threads.emplace_back([&, i] {
      auto code = compiler.compile(sample(std::to_string(i)));
      EXPECT_TRUE(code.ok()) << code.status().to_string();
      if (code.ok()) codes[i] = *code;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(compiler.compiled(), 6);
  EXPECT_GT(compiler.compiled_by_processes(), 0);
  EXPECT_GT(children().size(), 0U);
  for (size_t i = 0; i < codes.size(); ++i)
    EXPECT_EQ(codes[i].size(), nvrtc->compile(sample(std::to_string(i)), kArchitecture)->size());
  compiler.end_processes();
  EXPECT_TRUE(children().empty());
}

TEST(KernelCompiler, SaysWhyATextDoesNotCompileInAProcess) {
  auto nvrtc = Nvrtc::open(kDriver);
  ASSERT_TRUE(nvrtc.ok());
  KernelCompiler compiler(*nvrtc, kArchitecture, kDriver, "");
  std::vector<std::thread> threads;
  threads.reserve(3);
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      const auto code = compiler.compile(sample("no_such_name"));
      ASSERT_FALSE(code.ok());
      EXPECT_EQ(code.status().code(), "DC6154");
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace dc::runtime::kernel::cuda

int main(int argc, char** argv) {
  if (dc::runtime::kernel::cuda::serve_compiler(argc, argv)) return 0;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
