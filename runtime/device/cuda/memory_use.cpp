#include "runtime/device/cuda/memory_use.h"

#include <cstdio>
#include <string>

#include "runtime/device/cuda/driver.h"
#include "src/base/library_functions.h"

namespace dc::runtime::device {
namespace {

// nvmlMemory_t and nvmlDevice_t of nvml.h.
struct NvmlMemory {
  unsigned long long total, free, used;
};
struct OpaqueNvmlDevice;
using NvmlDevice = OpaqueNvmlDevice*;

struct Nvml {
  int (*init)() = nullptr;
  int (*device_of)(const char* uuid, NvmlDevice* device) = nullptr;
  int (*memory)(NvmlDevice device, NvmlMemory* memory) = nullptr;
};

std::optional<Nvml> open_nvml() {
  base::LibraryFunctions library("libnvidia-ml.so.1");
  if (!library.opened()) return std::nullopt;
  Nvml nvml;
  library.load(nvml.init, "nvmlInit_v2");
  library.load(nvml.device_of, "nvmlDeviceGetHandleByUUID");
  library.load(nvml.memory, "nvmlDeviceGetMemoryInfo");
  if (library.absent() != nullptr || nvml.init() != 0) return std::nullopt;
  return nvml;
}

// "GPU-01234567-89ab-cdef-0123-456789abcdef"
std::string text_of(const cuda::Uuid& uuid) {
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    text += digits;
  }
  return text;
}

}  // namespace

std::optional<int64_t> gpu_memory_in_use(int local_rank) {
  static const std::optional<Nvml> nvml = open_nvml();
  const auto driver = cuda::open_driver();
  if (!nvml || !driver.ok()) return std::nullopt;
  int count = 0, ordinal = 0;
  cuda::Uuid uuid{};
  if ((*driver)->device_count(&count) != cuda::kSuccess || count == 0 ||
      (*driver)->device_get(&ordinal, local_rank % count) != cuda::kSuccess ||
      (*driver)->device_uuid(&uuid, ordinal) != cuda::kSuccess)
    return std::nullopt;
  NvmlDevice device = nullptr;
  NvmlMemory memory{};
  if (nvml->device_of(text_of(uuid).c_str(), &device) != 0 || nvml->memory(device, &memory) != 0)
    return std::nullopt;
  return static_cast<int64_t>(memory.used);
}

}  // namespace dc::runtime::device
