#include "runtime/train/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace dc::runtime {
namespace {

std::atomic<bool> requested{false};
std::atomic<int> from_parent{0}, from_elsewhere{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void on_signal(int signal, siginfo_t* info, void*) {
  const bool sent = info->si_code == SI_USER || info->si_code == SI_QUEUE;
  ++(sent && info->si_pid == getppid() ? from_parent : from_elsewhere);
  if (StopCounts{from_parent.load(), from_elsewhere.load()}.second()) _exit(128 + signal);
  requested.store(true, std::memory_order_relaxed);
}

}  // namespace

void watch_stop_signals() {
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaddset(&action.sa_mask, SIGTERM);
  sigaddset(&action.sa_mask, SIGINT);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

bool stop_requested() { return requested.load(std::memory_order_relaxed); }

}  // namespace dc::runtime
