// Of the double of libcuda.so.1: memory that processes share, and streams that write and wait for
// numbers in memory of the host.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "runtime/device/cuda/driver.h"
#include "tests/double/gpu.h"

namespace {

using dc::gpu_double::Memory;
using dc::gpu_double::Stream;
namespace cuda = dc::runtime::device::cuda;

constexpr int kInvalidValue = 1, kInvalidContext = 201, kAlreadyRegistered = 712,
              kNotRegistered = 713;

Stream& of(cuda::StreamHandle handle) { return *reinterpret_cast<Stream*>(handle); }

// What a handle says: a file of a process, as long as that has it.
struct Exported {
  pid_t process;
  int file;
  size_t bytes;
};

uint32_t value_at(cuda::Address at) {
  auto* word = reinterpret_cast<uint32_t*>(Memory::instance().resolve(at));
  return std::atomic_ref<uint32_t>(*word).load(std::memory_order_acquire);
}

}  // namespace

extern "C" {

int cuIpcGetMemHandle(cuda::IpcHandle* handle, cuda::Address address) {
  DC_MAY_FAIL(cuIpcGetMemHandle);
  Exported exported{getpid(), -1, 0};
  exported.file = Memory::instance().share(address, &exported.bytes);
  if (exported.file < 0) return kInvalidValue;
  std::memcpy(handle->bytes, &exported, sizeof exported);
  return 0;
}
// Not by the process whose memory it is.
int cuIpcOpenMemHandle_v2(cuda::Address* address, cuda::IpcHandle handle, unsigned flags) {
  DC_MAY_FAIL(cuIpcOpenMemHandle);
  Exported exported{};
  std::memcpy(&exported, handle.bytes, sizeof exported);
  if (exported.process == getpid()) return kInvalidContext;
  if (flags != cuda::kLazyPeerAccess) return kInvalidValue;
  const std::string path =
      "/proc/" + std::to_string(exported.process) + "/fd/" + std::to_string(exported.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  *address = file < 0 ? 0 : Memory::instance().import(file, exported.bytes);
  if (file >= 0) close(file);
  return *address != 0 ? 0 : kInvalidValue;
}
int cuIpcCloseMemHandle(cuda::Address address) {
  return Memory::instance().close_import(address) ? 0 : kInvalidValue;
}

int cuMemHostRegister_v2(void* address, size_t bytes, unsigned flags) {
  DC_MAY_FAIL(cuMemHostRegister);
  if (bytes == 0 || flags != (cuda::kPortable | cuda::kDeviceMap)) return kInvalidValue;
  return Memory::instance().add_host(address, bytes) ? 0 : kAlreadyRegistered;
}
int cuMemHostUnregister(void* address) {
  return Memory::instance().remove_host(address) ? 0 : kNotRegistered;
}
int cuMemHostGetDevicePointer_v2(cuda::Address* address, void* of_host, unsigned) {
  *address = reinterpret_cast<uintptr_t>(of_host);
  return Memory::instance().reaches(*address, 1) ? 0 : kInvalidValue;
}

int cuStreamWriteValue32_v2(cuda::StreamHandle stream, cuda::Address to, uint32_t value, unsigned) {
  DC_MAY_FAIL(cuStreamWriteValue32);
  if (!Memory::instance().reaches(to, 4)) return kInvalidValue;
  of(stream).add([=] {
    auto* word = reinterpret_cast<uint32_t*>(Memory::instance().resolve(to));
    std::atomic_ref<uint32_t>(*word).store(value, std::memory_order_release);
  });
  return 0;
}
// Another process may write the number: it is looked at again and again.
int cuStreamWaitValue32_v2(cuda::StreamHandle stream, cuda::Address at, uint32_t value,
                           unsigned flags) {
  DC_MAY_FAIL(cuStreamWaitValue32);
  if (flags != cuda::kAtLeast || !Memory::instance().reaches(at, 4)) return kInvalidValue;
  of(stream).add([=] {
    while (static_cast<int32_t>(value_at(at) - value) < 0 && dc::gpu_double::lasting_error() == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(10));
  });
  return 0;
}

}  // extern "C"
