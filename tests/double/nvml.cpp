// A double of libnvidia-ml.so.1: how much of the GPU that is none is in use.
#include <cstring>

#include "tests/double/gpu.h"

namespace {

// What a context takes beyond what is allocated in it, once there is one.
constexpr unsigned long long kContextBytes = 100ULL << 20;
constexpr int kNotFound = 6;

struct Memory {
  unsigned long long total, free, used;
};

}  // namespace

extern "C" {

int nvmlInit_v2() { return dc::gpu_double::asked_to_fail("nvmlInit"); }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  constexpr size_t kLength = sizeof "GPU-01234567-89ab-cdef-0123-456789abcdef" - 1;
  *device = nullptr;
  return std::strncmp(uuid, "GPU-", 4) == 0 && std::strlen(uuid) == kLength ? 0 : kNotFound;
}
int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
  const auto& own = dc::gpu_double::Memory::instance();
  const bool has_context = dc::gpu_double::calls_of("cuDevicePrimaryCtxRetain") > 0;
  memory->total = own.total_bytes() + kContextBytes;
  memory->used = own.total_bytes() - own.free_bytes() + (has_context ? kContextBytes : 0);
  memory->free = memory->total - memory->used;
  return 0;
}

}  // extern "C"
