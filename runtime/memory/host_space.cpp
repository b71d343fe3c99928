#include "runtime/memory/host_space.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace dc::runtime {

base::Result<HostSpace> HostSpace::create(int64_t bytes) {
  HostSpace space;
  if (bytes == 0) return space;
  void* base = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) {
    return base::Status(base::ErrorKind::OutOfMemory, "DC6701",
                        "cannot get " + std::to_string(bytes) + " bytes of host memory (" +
                            std::strerror(errno) +
                            "); free memory, compile with --offload-space disk, or leave out "
                            "--save-every, which keeps a copy of the state");
  }
  space.base_ = static_cast<std::byte*>(base);
  space.bytes_ = bytes;
  return space;
}

HostSpace::~HostSpace() {
  if (base_ != nullptr) munmap(base_, static_cast<size_t>(bytes_));
}

}  // namespace dc::runtime
