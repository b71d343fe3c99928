#include "runtime/train/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace dc::runtime::train {
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

sigset_t stop_signals() {
  sigset_t both;
  sigemptyset(&both);
  sigaddset(&both, SIGTERM);
  sigaddset(&both, SIGINT);
  return both;
}

}  // namespace

void hold_stop_signals() {
  const sigset_t both = stop_signals();
  sigprocmask(SIG_BLOCK, &both, nullptr);
}

void watch_stop_signals() {
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  action.sa_mask = stop_signals();
  sigaction(SIGTERM, &action, nullptr);
  // Who started this in the background may have had SIGINT ignored: it is for the foreground.
  struct sigaction before {};
  sigaction(SIGINT, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(SIGINT, &action, nullptr);
  sigprocmask(SIG_UNBLOCK, &action.sa_mask, nullptr);
}

bool stop_requested() { return requested.load(std::memory_order_relaxed); }

}  // namespace dc::runtime::train
