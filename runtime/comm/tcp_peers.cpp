#include "runtime/comm/tcp_peers.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace dc::runtime::comm {
namespace {

struct Goodbye {
  uint32_t failed = 0;
  char reason[252] = {};
};

void count_one(int event) {
  const uint64_t one = 1;
  if (write(event, &one, sizeof(one)) != sizeof(one)) {
    // An event counter refuses only when it is full, and then its reader wakes anyway.
  }
}

}  // namespace

struct Peers::Line {
  int rank = 0, socket = -1;
  Goodbye goodbye;
  size_t heard = 0;  // bytes
};

base::Result<std::unique_ptr<Peers>> Peers::create(int rank, const std::vector<Seat>& seats) {
  const int world = static_cast<int>(seats.size());
  DC_ASSIGN_OR_RETURN(device::Mapping memory,
                      device::Mapping::anonymous(ControlPage::bytes(world)));
  return std::unique_ptr<Peers>(new Peers(rank, std::move(memory), seats));
}

Peers::Peers(int rank, device::Mapping memory, const std::vector<Seat>& seats)
    : rank_(rank),
      memory_(std::move(memory)),
      page_(memory_.base(), static_cast<int>(seats.size())),
      silent_(seats.size()),
      stop_(eventfd(0, EFD_CLOEXEC)) {
  for (size_t peer = 0; peer < seats.size(); ++peer) {
    page_.rank(static_cast<int>(peer)).pid.store(seats[peer].pid);
    hosts_.push_back(seats[peer].address.host);
  }
}

void Peers::watch(std::vector<device::Descriptor> lifelines) {
  lifelines_ = std::move(lifelines);
  std::vector<Line> lines;
  for (size_t peer = 0; peer < lifelines_.size(); ++peer) {
    if (!lifelines_[peer].ok()) continue;
    keep_alive(lifelines_[peer].get(), true);
    lines.push_back({static_cast<int>(peer), lifelines_[peer].get(), {}, 0});
  }
  // Signals are for the host thread: this one would only be interrupted.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this, lines = std::move(lines)]() mutable { run(lines); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Peers::run(std::vector<Line>& lines) {
  std::vector<pollfd> events{{stop_.get(), POLLIN, 0}};
  for (const Line& line : lines) events.push_back({line.socket, POLLIN, 0});
  for (;;) {
    if (poll(events.data(), events.size(), -1) < 0) continue;  // interrupted
    if (events[0].revents != 0) return;
    for (size_t i = 1; i < events.size(); ++i) {
      if (events[i].revents == 0) continue;
      listen_to(lines[i - 1]);
      if (gone(lines[i - 1].rank)) events[i].fd = -1;  // poll ignores it from now on
    }
  }
}

void Peers::listen_to(Line& line) {
  auto* into = reinterpret_cast<std::byte*>(&line.goodbye) + line.heard;
  const ssize_t got = recv(line.socket, into, sizeof(Goodbye) - line.heard, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    const bool silent = got < 0 && errno != ECONNRESET;
    silent_[static_cast<size_t>(line.rank)].store(silent);
    return record_death(line.rank);
  }
  line.heard += static_cast<size_t>(got);
  if (line.heard < sizeof(Goodbye)) return;
  line.goodbye.reason[sizeof(line.goodbye.reason) - 1] = 0;
  const base::Status why(base::ErrorKind::PeerDied, "DC6104", line.goodbye.reason);
  page_.record_leave(line.rank, line.goodbye.failed != 0 ? why : base::ok_status());
  wake_all();
}

void Peers::stop_watching() {
  if (!thread_.joinable()) return;
  count_one(stop_.get());
  thread_.join();
}

void Peers::leave(const base::Status& why) {
  stop_watching();
  Goodbye goodbye;
  if (!why.ok()) {
    goodbye.failed = 1;
    std::memcpy(goodbye.reason, why.sentence().data(),
                std::min(why.sentence().size(), sizeof(goodbye.reason) - 1));
  }
  for (const device::Descriptor& line : lifelines_) {
    if (!line.ok()) continue;
    // Fits into the socket's empty buffer; a peer that is gone does not matter any more.
    send(line.get(), &goodbye, sizeof(goodbye), MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(line.get(), SHUT_WR);
  }
}

bool Peers::gone(int rank) const { return page_.left(rank); }

base::Status Peers::gone_status(int rank, std::string_view doing) const {
  const base::Status status = page_.gone(rank, doing);
  const std::string& host = hosts_[static_cast<size_t>(rank)];
  if (!silent_[static_cast<size_t>(rank)].load()) {
    return base::Status(status.kind(), status.code(),
                        status.sentence() + " (it ran at " + host + ")");
  }
  return base::Status(status.kind(), status.code(),
                      "rank " + std::to_string(rank) + " at " + host +
                          " cannot be reached any more" +
                          (doing.empty() ? "" : " while this rank was in " + std::string(doing)) +
                          ": no answer for half a minute; see that host and the network between, "
                          "and start the job again");
}

void Peers::record_death(int rank) {
  page_.record_death(rank);
  wake_all();
}

base::Status Peers::health(std::string_view doing) const {
  if (const auto rank = page_.first_failure()) return gone_status(*rank, doing);
  return base::ok_status();
}

void Peers::add_waiter(int event) {
  const std::lock_guard lock(mutex_);
  waiters_.push_back(event);
}

void Peers::remove_waiter(int event) {
  const std::lock_guard lock(mutex_);
  std::erase(waiters_, event);
}

void Peers::wake_all() {
  const std::lock_guard lock(mutex_);
  for (const int event : waiters_) count_one(event);
}

}  // namespace dc::runtime::comm
