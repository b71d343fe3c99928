// Fills in recordings become kernels, on the doubles of the driver and of NVRTC (tests/double).
#include <dlfcn.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <vector>

#include "runtime/kernel/cuda/hand_source.h"
#include "runtime/kernel/cuda/workshop.h"
#include "tests/runtime/kernel/cuda/kernel_cache.h"

namespace dc::runtime {
namespace {

constexpr int64_t kBytes = 4096;

device::CudaDevice& gpu() {
  return static_cast<device::CudaDevice&>(*device::open_device(base::DeviceKind::Cuda).value());
}
int calls_of(const char* name) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  static const auto count = reinterpret_cast<int (*)(const char*)>(dlsym(driver, "doubleCallsOf"));
  return count != nullptr ? count(name) : -1;
}

// Two streams that fill and copy in turns: an edge that got lost when a fill was replaced would
// show, since the double draws the order of what may come in any order.
class Recorded {
 public:
  explicit Recorded(bool with_kernel) {
    if (!with_kernel) return;
    workshop_ = kernel::cuda::Workshop::open(gpu()).value();
    const auto launch = workshop_->launch(
        kernel::cuda::source_of("dc_fill_words", "fill_words.h", "FillWords", "fill_words"), 0, {});
    EXPECT_TRUE(launch.ok()) << launch.status().to_string();
    if (launch.ok())
      static_cast<device::CudaStream&>(*streams_[0]).set_fill_kernel(launch->function);
  }
  base::Status record() {
    device::Stream &one = *streams_[0], &two = *streams_[1];
    device::Stream* const all[] = {&one, &two};
    std::byte* const at = memory_->base();
    auto graph = gpu().record(all, [&] {
      one.fill(at, std::byte{7}, 2048);
      one.copy(at + 2048, at, 512);
      one.signal(*there_, 1);
      EXPECT_TRUE(two.wait(*there_, 1));
      one.fill(at + 1024, std::byte{1}, 64);
      two.fill(at + 512, std::byte{0x80}, 400);
      two.copy(at + 3072, at + 512, 512);
      two.signal(*back_, 1);
      EXPECT_TRUE(one.wait(*back_, 1));
      one.fill(at, std::byte{9}, 5);         // no whole words
      one.fill(at + 33, std::byte{3}, 128);  // not on a word
      one.fill(at + 512, std::byte{0}, 4);
      one.copy(at + 2600, at + 512, 100);
      return base::ok_status();
    });
    DC_RETURN_IF_ERROR(graph.status());
    graph_ = std::move(*graph);
    return {};
  }
  std::vector<std::byte> launched() {
    streams_[0]->fill(memory_->base(), std::byte{0x55}, kBytes);
    graph_->launch(*streams_[0]);
    EXPECT_TRUE(streams_[0]->drain().ok());
    std::vector<std::byte> seen(kBytes);
    EXPECT_TRUE(gpu().download(seen, memory_->base()).ok());
    return seen;
  }

 private:
  std::unique_ptr<kernel::cuda::Workshop> workshop_;
  std::unique_ptr<device::DeviceMemory> memory_ = gpu().allocate(kBytes).value();
  std::array<std::unique_ptr<device::Stream>, 2> streams_{gpu().make_stream(), gpu().make_stream()};
  std::unique_ptr<device::Event> there_ = gpu().make_event(), back_ = gpu().make_event();
  std::unique_ptr<device::Graph> graph_;
};

TEST(CudaFillsOfTheDouble, FillsOfWordsBecomeKernelsInTheirPlace) {
  Recorded with(true), without(false);
  const int made = calls_of("cuGraphAddKernelNode"), gone = calls_of("cuGraphDestroyNode");
  ASSERT_TRUE(without.record().ok());
  EXPECT_EQ(calls_of("cuGraphAddKernelNode"), made);
  ASSERT_TRUE(with.record().ok());
  EXPECT_EQ(calls_of("cuGraphAddKernelNode") - made, 4);
  EXPECT_EQ(calls_of("cuGraphDestroyNode") - gone, 4);
  for (int launch = 0; launch < 10; ++launch) EXPECT_EQ(with.launched(), without.launched());
}

// What of the driver does not say stays a fill.
TEST(CudaFillsOfTheDouble, FillsStayWhereTheDriverDoesNotSayWhatFollowsThem) {
  Recorded with(true), without(false);
  ASSERT_TRUE(without.record().ok());
  const int made = calls_of("cuGraphAddKernelNode");
  const std::string next = std::to_string(calls_of("cuGraphNodeGetDependentNodes") + 1);
  setenv("DOUBLE_FAIL", ("cuGraphNodeGetDependentNodes:" + next + ":1").c_str(), 1);
  const base::Status recorded = with.record();
  unsetenv("DOUBLE_FAIL");
  ASSERT_TRUE(recorded.ok()) << recorded.to_string();
  EXPECT_EQ(calls_of("cuGraphAddKernelNode") - made, 3);
  EXPECT_EQ(with.launched(), without.launched());
}

TEST(CudaFillsOfTheDouble, AGraphThatIsLeftIncompleteIsRefused) {
  Recorded with(true);
  const std::string next = std::to_string(calls_of("cuGraphAddDependencies") + 1);
  setenv("DOUBLE_FAIL", ("cuGraphAddDependencies:" + next + ":1").c_str(), 1);
  const base::Status recorded = with.record();
  unsetenv("DOUBLE_FAIL");
  EXPECT_EQ(recorded.code(), "DC6147");
}

}  // namespace
}  // namespace dc::runtime
