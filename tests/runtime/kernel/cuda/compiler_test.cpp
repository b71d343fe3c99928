// What compiles kernels, on the double of NVRTC (tests/double): errors, and the cache.
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>

#include "runtime/kernel/cuda/kernel_compiler.h"
#include "runtime/kernel/cuda/workshop.h"
#include "src/base/file.h"
#include "tests/runtime/kernel/cuda/sample_kernel.h"
#include "tests/src/archive/temporary_folder.h"

namespace dc::runtime::kernel::cuda {
namespace {

using ::testing::HasSubstr;

Nvrtc nvrtc() { return Nvrtc::open(13000).value(); }

TEST(Nvrtc, KnowsItsVersion) { EXPECT_EQ(nvrtc().version(), "13.0"); }

TEST(Nvrtc, MustNotBeNewerThanTheDriver) {
  const auto opened = Nvrtc::open(12080);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), "DC6152");
  EXPECT_EQ(base::exit_code(opened.status().kind()), 69);
  EXPECT_THAT(opened.status().to_string(), HasSubstr("update the driver"));
}

TEST(Nvrtc, OfAnotherMajorVersionIsNotUsed) {
  setenv("DOUBLE_NVRTC", "14", 1);
  const auto opened = Nvrtc::open(13000);
  unsetenv("DOUBLE_NVRTC");
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), "DC6151");
  EXPECT_EQ(base::exit_code(opened.status().kind()), 69);
  EXPECT_THAT(opened.status().to_string(), HasSubstr("libnvrtc.so.13 is of version 14.0"));
}

TEST(Nvrtc, MayBeMissing) {
  constexpr int kNone[] = {99};
  const auto opened = Nvrtc::open(13000, kNone);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), "DC6150");
  EXPECT_EQ(base::exit_code(opened.status().kind()), 69);
  EXPECT_THAT(opened.status().to_string(), HasSubstr("libnvrtc.so.99"));
}

TEST(Nvrtc, RefusesAnArchitectureThatItDoesNotKnow) {
  const auto code = nvrtc().compile(sample("1"), 75);
  ASSERT_FALSE(code.ok());
  EXPECT_EQ(code.status().code(), "DC6153");
  EXPECT_EQ(base::exit_code(code.status().kind()), 81);
  EXPECT_THAT(code.status().to_string(), HasSubstr("sm_75"));
}

TEST(Nvrtc, SaysWhyATextDoesNotCompile) {
  const auto code = nvrtc().compile(sample("no_such_name"), 90);
  ASSERT_FALSE(code.ok());
  EXPECT_EQ(code.status().code(), "DC6154");
  EXPECT_EQ(base::exit_code(code.status().kind()), 70);
  EXPECT_THAT(code.status().to_string(), HasSubstr("no_such_name"));
}

TEST(KernelCompiler, KeepsWhatItCompiles) {
  const tests::TemporaryFolder folder;
  const auto compile = [&](const KernelSource& source, int architecture, int compiled) {
    KernelCompiler compiler(nvrtc(), architecture, 13000, folder / "cache");
    const auto code = compiler.compile(source);
    EXPECT_TRUE(code.ok()) << code.status().to_string();
    EXPECT_EQ(compiler.compiled(), compiled);
    EXPECT_EQ(compiler.from_cache(), 1 - compiled);
    return code.ok() ? *code : std::string();
  };
  const std::string first = compile(sample("1"), 90, 1);
  EXPECT_EQ(compile(sample("1"), 90, 0), first);
  compile(sample("2"), 90, 1);
  compile(sample("1"), 80, 1);
  // Damaged, and replaced.
  for (const auto& file : std::filesystem::directory_iterator(folder / "cache/kernels")) {
    auto bytes = base::read_file(file.path().string());
    ASSERT_TRUE(bytes.ok());
    bytes->back() = static_cast<char>(bytes->back() ^ 1);
    ASSERT_TRUE(base::write_file_atomically(file.path().string(), *bytes).ok());
  }
  compile(sample("1"), 90, 1);
  compile(sample("1"), 90, 0);
}

// dcc cache gc removes first what was used least recently.
TEST(KernelCompiler, MarksWhatItUses) {
  const tests::TemporaryFolder folder;
  KernelCompiler compiler(nvrtc(), 90, 13000, folder / "cache");
  ASSERT_TRUE(compiler.compile(sample("1")).ok());
  const auto file = std::filesystem::directory_iterator(folder / "cache/kernels")->path();
  const auto before = std::filesystem::last_write_time(file) - std::chrono::hours(1);
  std::filesystem::last_write_time(file, before);
  ASSERT_TRUE(compiler.compile(sample("1")).ok());
  EXPECT_EQ(compiler.from_cache(), 1);
  EXPECT_GT(std::filesystem::last_write_time(file), before + std::chrono::minutes(59));
}

TEST(KernelCompiler, NeedsNoCache) {
  const tests::TemporaryFolder folder;
  for (const std::string& directory : {std::string(), folder.write("file", "x")}) {
    KernelCompiler compiler(nvrtc(), 90, 13000, directory);
    EXPECT_TRUE(compiler.compile(sample("1")).ok());
    EXPECT_TRUE(compiler.compile(sample("1")).ok());
    EXPECT_EQ(compiler.compiled(), 2);
  }
}

// What is listed is compiled before any of it is loaded; what does not compile is told when it is
// launched.
TEST(Workshop, CompilesAhead) {
  const tests::TemporaryFolder folder;
  const std::string of_all_tests = std::getenv("DCC_CACHE_DIR");
  setenv("DCC_CACHE_DIR", (folder / "cache").c_str(), 1);
  device::Device* const device = device::open_device(base::DeviceKind::Cuda).value();
  auto workshop = Workshop::open(*static_cast<device::CudaDevice*>(device)).value();
  setenv("DCC_CACHE_DIR", of_all_tests.c_str(), 1);
  const auto kept = [&] {
    std::error_code none;
    return std::distance(std::filesystem::directory_iterator(folder / "cache/kernels", none), {});
  };
  workshop->begin_listing();
  for (const char* const value : {"1", "2", "3", "1", "no_such_name"}) {
    const auto listed = workshop->launch(sample(value), 1, 0);
    ASSERT_TRUE(listed.ok());
    EXPECT_EQ(listed->function, nullptr);
  }
  EXPECT_EQ(kept(), 0);
  workshop->compile_listed();
  EXPECT_EQ(kept(), 3);
  std::filesystem::remove_all(folder / "cache");
  workshop->begin_kernel(nullptr, 0);
  for (const char* const value : {"1", "2", "3", "1"}) {
    const auto made = workshop->launch(sample(value), 1, 0);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    EXPECT_NE(made->function, nullptr);
  }
  EXPECT_EQ(kept(), 0);
  EXPECT_EQ(workshop->launch(sample("no_such_name"), 1, 0).status().code(), "DC6154");
}

}  // namespace
}  // namespace dc::runtime::kernel::cuda
