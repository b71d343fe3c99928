#include "tests/fuzz/kernel_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "src/base/units.h"

#if defined(__SANITIZE_ADDRESS__)
#define DC_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DC_ADDRESS_SANITIZER 1
#endif
#endif
#ifdef DC_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace dc::fuzz {
namespace {

constexpr int64_t kStep = KernelMemory::kWindow + KernelMemory::kPage;
constexpr int64_t kScratchBegin = kStep * static_cast<int64_t>(KernelMemory::kWindows);
constexpr int64_t kTotal = kScratchBegin + KernelMemory::kScratch + 2 * KernelMemory::kPage;
constexpr std::byte kPattern{0xa7};

int64_t begin_of(size_t window) {
  return KernelMemory::kPage + kStep * static_cast<int64_t>(window);
}

}  // namespace

KernelMemory::KernelMemory()
    : memory_(static_cast<std::byte*>(
          mmap(nullptr, kTotal, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
  if (memory_ == MAP_FAILED) std::abort();
  const auto open = [this](int64_t begin, int64_t bytes) {
    if (mprotect(memory_ + begin, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE) != 0)
      std::abort();
  };
  for (size_t window = 0; window < kWindows; ++window) open(begin_of(window), kWindow);
  open(kScratchBegin + kPage, kScratch);
}

KernelMemory::~KernelMemory() { munmap(memory_, kTotal); }

int64_t KernelMemory::place(size_t window, int64_t bytes, bool at_end) {
  return begin_of(window) + (at_end ? kWindow - bytes : 0);
}

int64_t KernelMemory::place_scratch(int64_t bytes) {
  return kScratchBegin + kPage + (kScratch - bytes) / base::kAlignment * base::kAlignment;
}

KernelMemory::Part KernelMemory::part(size_t window, int64_t begin, int64_t bytes) {
  return {begin, bytes, begin_of(window), kWindow};
}

// Of the large window only what is near.
KernelMemory::Part KernelMemory::scratch_part(int64_t begin, int64_t bytes) {
  const int64_t first = std::max(kScratchBegin + kPage, begin - kPage);
  return {begin, bytes, first, kScratchBegin + kPage + kScratch - first};
}

void KernelMemory::open(const Part& part) {
  std::byte* window = memory_ + part.window;
  std::memset(window, std::to_integer<int>(kPattern), static_cast<size_t>(part.window_bytes));
  ASAN_POISON_MEMORY_REGION(window, static_cast<size_t>(part.window_bytes));
  ASAN_UNPOISON_MEMORY_REGION(memory_ + part.begin, static_cast<size_t>(part.bytes));
}

void KernelMemory::close(const Part& part) {
  ASAN_UNPOISON_MEMORY_REGION(memory_ + part.window, static_cast<size_t>(part.window_bytes));
}

bool KernelMemory::is_intact(const Part& part) const {
  static const std::vector<std::byte> pattern(kWindow, kPattern);
  const auto is_pattern = [this](int64_t first, int64_t end) {
    return std::memcmp(memory_ + first, pattern.data(), static_cast<size_t>(end - first)) == 0;
  };
  return is_pattern(part.window, part.begin) &&
         is_pattern(part.begin + part.bytes, part.window + part.window_bytes);
}

}  // namespace dc::fuzz
