// `new` that says bad_alloc where there is no memory, for an allocator written in C (mimalloc),
// whose own `new` would end the process. What a search gives back it soon takes again: none of that
// goes back to the system before the end.
#include <mimalloc.h>

#include <cstdlib>
#include <new>

namespace {
#if MI_MALLOC_VERSION < 210
constexpr mi_option_t kGivesBack = mi_option_allow_decommit;
constexpr long kNever = 0;
#else
constexpr mi_option_t kGivesBack = mi_option_purge_delay;
constexpr long kNever = -1;
#endif
[[maybe_unused]] const bool is_set = (mi_option_set(kGivesBack, kNever), true);
}  // namespace

void* operator new(size_t bytes) {
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new[](size_t bytes) { return operator new(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
