// Memory that several processes reach from a GPU, on the double of the driver (tests/double).
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "runtime/device/cuda/cuda_sharing.h"
#include "runtime/device/memory_map.h"

namespace dc::runtime {
namespace {

device::CudaDevice& gpu() {
  return static_cast<device::CudaDevice&>(*device::open_device(base::DeviceKind::Cuda).value());
}

class HostMemory final : public device::DeviceMemory {
 public:
  explicit HostMemory(device::Mapping mapping)
      : DeviceMemory(mapping.base(), mapping.bytes()), mapping_(std::move(mapping)) {}

 private:
  device::Mapping mapping_;
};
std::shared_ptr<device::DeviceMemory> host_memory() {
  return std::make_shared<HostMemory>(device::Mapping::anonymous(4096).value());
}

std::vector<std::byte> bytes_of(const std::byte* at, size_t count) {
  std::vector<std::byte> seen(count);
  EXPECT_TRUE(gpu().download(seen, at).ok());
  return seen;
}

// The child writes into the parent's memory and sees what the parent wrote before.
int use_as_a_peer(int handles) {
  device::cuda::IpcHandle handle{};
  if (read(handles, handle.bytes, sizeof handle) != sizeof handle) return 1;
  auto memory = device::import_memory(gpu(), handle, 5000);
  if (!memory.ok()) return 2;
  if (bytes_of((*memory)->base(), 2) != std::vector<std::byte>(2, std::byte{3})) return 3;
  auto stream = gpu().make_stream();
  stream->fill((*memory)->base() + 4000, std::byte{7}, 1000);
  return stream->drain().ok() ? 0 : 4;
}

// The process forks before it has opened its GPU.
TEST(CudaSharingDeathTest, AProcessWritesIntoAnothersMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    int handles[2];
    if (pipe(handles) != 0) std::exit(1);
    const pid_t child = fork();
    if (child == 0) _exit(use_as_a_peer(handles[0]));
    auto memory = gpu().allocate(5000);
    auto stream = gpu().make_stream();
    stream->fill((*memory)->base(), std::byte{3}, 5000);
    if (!stream->drain().ok()) std::exit(2);
    const auto handle = device::export_memory(gpu(), **memory);
    if (!handle.ok() || write(handles[1], handle->bytes, sizeof *handle) != sizeof *handle)
      std::exit(3);
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) std::exit(10 + WEXITSTATUS(status));
    std::vector<std::byte> expected(5000, std::byte{3});
    std::fill(expected.begin() + 4000, expected.end(), std::byte{7});
    std::exit(bytes_of((*memory)->base(), 5000) == expected ? 0 : 4);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

TEST(CudaSharing, AProcessDoesNotImportItsOwnMemory) {
  auto memory = gpu().allocate(64);
  ASSERT_TRUE(memory.ok());
  const auto handle = device::export_memory(gpu(), **memory);
  ASSERT_TRUE(handle.ok()) << handle.status().to_string();
  const auto imported = device::import_memory(gpu(), *handle, 64);
  ASSERT_FALSE(imported.ok());
  EXPECT_EQ(imported.status().code(), "DC6149");
}

TEST(CudaSharing, StreamsWaitForNumbersThatTheHostOrAnotherStreamWrites) {
  const auto registered = device::register_host(gpu(), host_memory());
  ASSERT_TRUE(registered.ok()) << registered.status().to_string();
  auto* const words = reinterpret_cast<uint32_t*>((*registered)->base());
  auto memory = gpu().allocate(1);
  ASSERT_TRUE(memory.ok());
  const auto first = gpu().make_stream(), second = gpu().make_stream();
  auto& one = static_cast<device::CudaStream&>(*first);
  auto& two = static_cast<device::CudaStream&>(*second);
  one.wait_for(words, 5);
  one.fill((*memory)->base(), std::byte{1}, 1);
  one.write(words + 1, 0x80000001);
  two.wait_for(words + 1, 0x7ffffff0);  // behind what is written, though it is larger as an int
  two.write(words + 2, 9);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(std::atomic_ref(words[2]).load(), 0U);
  EXPECT_EQ(bytes_of((*memory)->base(), 1)[0], std::byte{0});
  std::atomic_ref(words[0]).store(6);
  ASSERT_TRUE(one.drain().ok() && two.drain().ok());
  EXPECT_EQ(words[2], 9U);
  EXPECT_EQ(bytes_of((*memory)->base(), 1)[0], std::byte{1});
}

TEST(CudaSharing, RegistersOnceWhatSeveralThreadsAskFor) {
  const auto memory = host_memory();
  auto first = device::register_host(gpu(), memory), second = device::register_host(gpu(), memory);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->get(), second->get());
  first->reset();
  const auto stream = gpu().make_stream();
  auto* const word = reinterpret_cast<uint32_t*>((*second)->base());
  static_cast<device::CudaStream&>(*stream).write(word, 4);
  ASSERT_TRUE(stream->drain().ok());
  EXPECT_EQ(*word, 4U);
  second->reset();
  EXPECT_TRUE(device::register_host(gpu(), memory).ok());
}

}  // namespace
}  // namespace dc::runtime
