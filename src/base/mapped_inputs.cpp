#include "src/base/mapped_inputs.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

namespace dc::base {
namespace {

// The handler may run at any moment, so it reads plain memory behind lock-free atomics only.
struct Mapping {
  std::atomic<uintptr_t> begin{0};  // 0: free; 1: being written
  std::atomic<size_t> bytes{0};
  std::array<char, 240> path{};  // the end of longer ones
};
std::array<Mapping, 1024> mappings;
std::array<char, 64> program_name{};
static_assert(std::atomic<uintptr_t>::is_always_lock_free &&
              std::atomic<size_t>::is_always_lock_free);

template <size_t kSize>
void copy_end(const std::string& text, std::array<char, kSize>& to) {
  const size_t count = std::min(text.size(), kSize - 1);
  std::memcpy(to.data(), text.data() + text.size() - count, count);
  to[count] = '\0';
}

void say(const char* text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
}

void on_bus_error(int, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const Mapping& mapping : mappings) {
    const uintptr_t begin = mapping.begin.load(std::memory_order_acquire);
    if (begin <= 1 || address < begin || address - begin >= mapping.bytes.load()) continue;
    say(program_name.data());
    say(": error[DC1007]: ");
    say(mapping.path.data());
    say(" became shorter, or its disk failed, while it was being read; put the whole file back and "
        "start again (exit 74)\n");
    _exit(74);
  }
  signal(SIGBUS, SIG_DFL);  // the faulting instruction runs again and ends the process
}

}  // namespace

void report_lost_inputs(const std::string& program) {
  copy_end(program, program_name);
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

void remember_mapping(const void* data, size_t bytes, const std::string& path) {
  for (Mapping& mapping : mappings) {
    uintptr_t expected = 0;
    if (!mapping.begin.compare_exchange_strong(expected, 1)) continue;
    copy_end(path, mapping.path);
    mapping.bytes.store(bytes);
    mapping.begin.store(reinterpret_cast<uintptr_t>(data), std::memory_order_release);
    return;
  }
}

void forget_mapping(const void* data) {
  for (Mapping& mapping : mappings) {
    if (mapping.begin.load() == reinterpret_cast<uintptr_t>(data)) {
      mapping.begin.store(0, std::memory_order_release);
      return;
    }
  }
}

}  // namespace dc::base
