#include "runtime/comm/watcher.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace dc::runtime::comm {

Watcher::Watcher(ControlPage page, std::vector<Lifeline> lifelines)
    : page_(page), lifelines_(std::move(lifelines)), stop_(eventfd(0, EFD_CLOEXEC)) {
  // Signals are for the host thread: this one would only be interrupted.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { watch(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Watcher::~Watcher() {
  const uint64_t one = 1;
  if (write(stop_.get(), &one, sizeof(one)) != sizeof(one)) {
    // An event counter at zero always takes a one.
  }
  thread_.join();
}

void Watcher::watch() {
  std::vector<pollfd> events;
  events.push_back({stop_.get(), POLLIN, 0});
  for (const Lifeline& line : lifelines_) {
    events.push_back({line.descriptor, static_cast<short>(line.process ? POLLIN : POLLRDHUP), 0});
  }
  for (;;) {
    if (poll(events.data(), events.size(), -1) < 0) continue;  // interrupted
    if (events[0].revents != 0) return;
    for (size_t i = 1; i < events.size(); ++i) {
      if (events[i].revents == 0) continue;
      page_.record_death(lifelines_[i - 1].rank);  // without effect if it said goodbye
      events[i].fd = -1;                           // poll ignores it from now on
    }
  }
}

device::Descriptor open_process(int pid) {
  if (pid <= 0) return device::Descriptor();
  return device::Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

}  // namespace dc::runtime::comm
