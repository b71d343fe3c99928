// LD_PRELOAD library: says which code allocates while a training job runs its steps.
//
//   DCC_WATCH_STEPS=FIRST:LAST  watch after step FIRST was written to the metrics, until LAST was
//   DCC_WATCH_DIR=DIR           reports: DIR/PID, one line per distinct (size, call stack);
//                               and DIR/step, the step all processes of the job share
//
// A step ends when any process writes a line that starts with {"step": (rank 0's metrics). A report
// line is: bytes, thread, then the stack from the inside out as LIBRARY+0xOFFSET. Reports are
// written at once with write(2): a rank may end without running destructors.
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

// The C library's own, by the names that it exports.
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier)
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
// NOLINTEND(bugprone-reserved-identifier)
}

namespace {

constexpr int kFrames = 48;
constexpr size_t kSeen = 1 << 14;

std::atomic<int64_t>* shared_step = nullptr;
int64_t first_step = 0, last_step = 0;
int report = -1;
std::atomic<uint64_t> seen[kSeen];
thread_local bool inside = false;

bool watching() {
  if (shared_step == nullptr || inside) return false;
  const int64_t step = shared_step->load(std::memory_order_relaxed);
  return step >= first_step && step < last_step;
}

// True the first time this value comes.
bool is_new(uint64_t value) {
  for (size_t probe = 0; probe < 64; ++probe) {
    std::atomic<uint64_t>& slot = seen[(value + probe) % kSeen];
    uint64_t old = 0;
    if (slot.compare_exchange_strong(old, value)) return true;
    if (old == value) return false;
  }
  return true;
}

uint64_t hash(size_t bytes, void* const* frames, int count) {
  uint64_t value = 1469598103934665603ull ^ bytes;
  for (int i = 0; i < count; ++i)
    value = (value ^ reinterpret_cast<uint64_t>(frames[i])) * 1099511628211ull;
  return value | 1;
}

void write_line(size_t bytes, void* const* frames, int count) {
  char line[8192], thread[17] = {};
  prctl(PR_GET_NAME, thread);
  for (char& c : thread)
    if (c == ' ') c = '_';
  int length = snprintf(line, sizeof line, "%zu %s", bytes, thread);
  for (int i = 0; i < count && length < static_cast<int>(sizeof line) - 300; ++i) {
    dl_find_object object = {};  // much faster than dladdr, which looks for a symbol, too
    const bool known = _dl_find_object(frames[i], &object) == 0;
    const char* path = known ? object.dlfo_link_map->l_name : "?";
    const char* slash = strrchr(path, '/');
    const char* name = slash ? slash + 1 : *path ? path : "program";
    const uint64_t base = known ? object.dlfo_link_map->l_addr : 0;
    const uint64_t offset = reinterpret_cast<uint64_t>(frames[i]) - base;
    length += snprintf(line + length, sizeof line - static_cast<size_t>(length), " %.80s+0x%llx",
                       name, static_cast<unsigned long long>(offset));
  }
  line[length++] = '\n';
  if (write(report, line, static_cast<size_t>(length)) != length) abort();
}

__attribute__((noinline)) void note(size_t bytes) {
  if (!watching()) return;
  inside = true;
  void* frames[kFrames];
  const int count = backtrace(frames, kFrames);
  if (is_new(hash(bytes, frames, count))) write_line(bytes, frames, count);
  inside = false;
}

void* map_step(const char* folder) {
  char path[4096];
  snprintf(path, sizeof path, "%s/step", folder);
  const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, 4096) != 0) abort();
  void* address = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (address == MAP_FAILED) abort();
  close(file);
  snprintf(path, sizeof path, "%s/%d", folder, static_cast<int>(getpid()));
  report = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (report < 0) abort();
  return address;
}

__attribute__((constructor)) void start() {
  const char *steps = getenv("DCC_WATCH_STEPS"), *folder = getenv("DCC_WATCH_DIR");
  if (steps == nullptr || folder == nullptr) return;
  char* end = nullptr;
  first_step = strtoll(steps, &end, 10);
  last_step = *end == ':' ? strtoll(end + 1, nullptr, 10) : INT64_MAX;
  void* frames[2];
  backtrace(frames, 2);  // loads what it needs now
  shared_step = static_cast<std::atomic<int64_t>*>(map_step(folder));
}

using Writev = ssize_t(int, const struct iovec*, int);
using Mmap = void*(void*, size_t, int, int, int, off_t);

}  // namespace

extern "C" {

void* malloc(size_t bytes) {
  note(bytes);
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  note(count * bytes);
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, size_t bytes) {
  note(bytes);
  return __libc_realloc(old, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  note(bytes);
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  note(bytes);
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** result, size_t alignment, size_t bytes) {
  note(bytes);
  *result = __libc_memalign(alignment, bytes);
  return *result == nullptr ? ENOMEM : 0;
}

void* mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  static Mmap* const real = reinterpret_cast<Mmap*>(dlsym(RTLD_NEXT, "mmap"));
  note(bytes);
  return real(address, bytes, protection, flags, file, offset);
}

ssize_t writev(int file, const struct iovec* parts, int count) {
  static Writev* const real = reinterpret_cast<Writev*>(dlsym(RTLD_NEXT, "writev"));
  const ssize_t written = real(file, parts, count);
  constexpr char kStep[] = "{\"step\":";
  if (shared_step != nullptr && count > 0 && parts[0].iov_len > sizeof kStep &&
      memcmp(parts[0].iov_base, kStep, sizeof kStep - 1) == 0)
    shared_step->fetch_add(1, std::memory_order_relaxed);
  return written;
}

}  // extern "C"
