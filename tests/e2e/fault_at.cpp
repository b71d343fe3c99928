// Preloaded into dcrun: the k-th call that changes files below a folder is the process's last, or
// fails.
//
//   DCC_FAULT_PATH  folder; calls elsewhere do not count
//   DCC_FAULT_AT    k, from 1
//   DCC_FAULT_RANK  the rank it is for, by DCRUN_RANK
//   DCC_FAULT       "kill" (before the call), or "full": this call and all later ones that need
//                   room fail with ENOSPC
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

std::atomic<long> calls{0};

const char* variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

bool is_mine() {
  static const bool mine = *variable("DCC_FAULT_PATH") != 0 &&
                           std::strcmp(variable("DCC_FAULT_RANK"), variable("DCRUN_RANK")) == 0;
  return mine;
}

bool counts(const char* path) {
  return is_mine() && path != nullptr && std::strstr(path, variable("DCC_FAULT_PATH")) != nullptr;
}

bool counts(int descriptor) {
  if (!is_mine()) return false;
  char link[64], path[4096];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
  const ssize_t size = readlink(link, path, sizeof(path) - 1);
  if (size < 0) return false;
  path[size] = 0;
  return counts(path);
}

// Whether this call is to fail.
bool fault(bool needs_room) {
  static const long at = std::atol(variable("DCC_FAULT_AT"));
  static const bool kills = std::strcmp(variable("DCC_FAULT"), "kill") == 0;
  const long call = ++calls;
  if (call < at) return false;
  if (kills) raise(SIGKILL);
  if (!needs_room) return false;
  errno = ENOSPC;
  return true;
}

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = va_arg(list, mode_t);
  va_end(list);
  if ((flags & O_CREAT) != 0 && counts(path) && fault(true)) return -1;
  static const auto real = next<int (*)(const char*, int, ...)>("open");
  return real(path, flags, mode);
}

int mkdir(const char* path, mode_t mode) {
  if (counts(path) && fault(true)) return -1;
  static const auto real = next<int (*)(const char*, mode_t)>("mkdir");
  return real(path, mode);
}

ssize_t pwrite(int descriptor, const void* bytes, size_t size, off_t offset) {
  if (counts(descriptor) && fault(true)) return -1;
  static const auto real = next<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  return real(descriptor, bytes, size, offset);
}

int ftruncate(int descriptor, off_t size) {
  if (counts(descriptor) && fault(true)) return -1;
  static const auto real = next<int (*)(int, off_t)>("ftruncate");
  return real(descriptor, size);
}

int posix_fallocate(int descriptor, off_t offset, off_t size) {
  if (counts(descriptor) && fault(true)) return ENOSPC;
  static const auto real = next<int (*)(int, off_t, off_t)>("posix_fallocate");
  return real(descriptor, offset, size);
}

int fsync(int descriptor) {
  if (counts(descriptor) && fault(true)) return -1;
  static const auto real = next<int (*)(int)>("fsync");
  return real(descriptor);
}

int rename(const char* from, const char* to) {
  if (counts(from) && fault(false)) return -1;
  static const auto real = next<int (*)(const char*, const char*)>("rename");
  return real(from, to);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) noexcept {
  if (counts(from) && fault(false)) return -1;
  static const auto real = next<int (*)(int, const char*, int, const char*, unsigned)>("renameat2");
  return real(from_folder, from, to_folder, to, flags);
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  if ((folder == AT_FDCWD ? counts(path) : counts(folder)) && fault(false)) return -1;
  static const auto real = next<int (*)(int, const char*, int)>("unlinkat");
  return real(folder, path, flags);
}

}  // extern "C"
