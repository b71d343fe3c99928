#include "runtime/device/memory_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "src/base/units.h"

namespace dc::runtime::device {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

base::Status no_memory(const char* call, int64_t bytes) {
  const char* cure = errno == EFBIG ? "raise the limit on the size of files (ulimit -f), which "
                                      "holds for shared memory too"
                                    : "free memory or raise the limit of this session";
  return base::Status(base::ErrorKind::OutOfMemory, "DC6106",
                      std::string("cannot get ") + std::to_string(bytes) +
                          " bytes of memory for the ranks (" + call + ": " + std::strerror(errno) +
                          "); " + cure);
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

Mapping::~Mapping() {
  if (base_ != nullptr) munmap(base_, static_cast<size_t>(bytes_));
}

base::Result<Mapping> Mapping::anonymous(int64_t bytes) {
  void* base = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return no_memory("mmap", bytes);
  if (bytes >= kHugePage) madvise(base, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return Mapping(static_cast<std::byte*>(base), bytes);
}

base::Result<Mapping> Mapping::committed(int64_t bytes) {
  void* base = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return no_memory("mmap", bytes);
  return Mapping(static_cast<std::byte*>(base), bytes);
}

base::Result<Mapping> Mapping::shared(int fd, int64_t bytes) {
  void* base = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return no_memory("mmap", bytes);
  if (bytes >= kHugePage) madvise(base, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return Mapping(static_cast<std::byte*>(base), bytes);
}

base::Status Mapping::make_private(int64_t offset, int64_t bytes) {
  const auto begin = reinterpret_cast<intptr_t>(base_ + offset), end = begin + bytes;
  const intptr_t first = base::round_up(begin, kHugePage), last = end / kHugePage * kHugePage;
  if (first >= last) return base::ok_status();
  std::byte* at = base_ + offset + (first - begin);
  const auto length = static_cast<size_t>(last - first);
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  if (mmap(at, length, PROT_READ | PROT_WRITE, kFlags, -1, 0) == MAP_FAILED) {
    return no_memory("mmap", last - first);
  }
  madvise(at, length, MADV_HUGEPAGE);
  return base::ok_status();
}

base::Result<Descriptor> make_shared_memory(int64_t bytes) {
  Descriptor memory(memfd_create("dcrun", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.ok()) return no_memory("memfd_create", bytes);
  if (ftruncate(memory.get(), bytes) != 0) return no_memory("ftruncate", bytes);
  if (fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return no_memory("fcntl", bytes);
  }
  return memory;
}

}  // namespace dc::runtime::device
