#include "runtime/comm/tcp_door.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "runtime/comm/control_page.h"

namespace dc::runtime::comm {
namespace {

constexpr size_t kMostWaiting = 256;              // the oldest leaves for one more
constexpr int64_t kPatienceNs = 10'000'000'000;   // ranks speak at once
constexpr int64_t kPauseNs = 100'000'000;         // until a descriptor may be free again
constexpr size_t kFixed = offsetof(Hello, rank);  // the same in every protocol

// A quarter of the descriptors: the ranks of this job need the others.
size_t most_guests() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMostWaiting;
  return std::clamp<size_t>(limit.rlim_cur / 4, 4, kMostWaiting);
}

}  // namespace

Hello::Hello() : bytes(sizeof(Hello)) {}

Door::Door(device::Descriptor listener)
    : listener_(std::move(listener)), max_guests_(most_guests()) {}

Hello Door::Guest::hello() const {
  Hello hello;
  auto* into = reinterpret_cast<std::byte*>(&hello);
  std::copy_n(said.begin(), kFixed, into);
  if (hello.protocol == kTcpProtocol) std::copy_n(said.begin(), sizeof(hello), into);
  return hello;
}

size_t Door::Guest::wanted() const {
  if (heard < kFixed) return kFixed;
  const size_t bytes = hello().bytes;
  return challenged ? bytes + sizeof(Proof) : bytes;
}

Door::Progress Door::read_from(Guest& guest) {
  const ssize_t got =
      recv(guest.socket.get(), guest.said.data() + guest.heard, guest.wanted() - guest.heard, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Progress::Waiting;
  if (got <= 0) return Progress::Stranger;
  guest.heard += static_cast<size_t>(got);
  const Hello ours;
  if (std::memcmp(guest.said.data(), ours.magic, std::min(guest.heard, sizeof(ours.magic))) != 0)
    return Progress::Stranger;
  if (guest.heard < kFixed) return Progress::Waiting;
  const Hello hello = guest.hello();
  const bool ours_but_not_as_long = hello.protocol == kTcpProtocol && hello.bytes != sizeof(Hello);
  if (hello.bytes < kFixed || hello.bytes > kLongestHello || ours_but_not_as_long)
    return Progress::Stranger;
  return guest.heard == guest.wanted() ? Progress::Complete : Progress::Waiting;
}

bool Door::ask(Guest& guest) {
  Challenge challenge;
  challenge.nonce = guest.challenge = draw_nonce();
  guest.challenged = true;
  // The first bytes in this direction: they fit into the socket, or it is broken.
  return send(guest.socket.get(), &challenge, sizeof(challenge), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(sizeof(challenge));
}

Door::Progress Door::listen_to(Guest& guest) {
  for (;;) {
    const size_t heard = guest.heard;
    const Progress progress = read_from(guest);
    if (progress == Progress::Stranger) return progress;
    if (progress == Progress::Waiting) {
      if (guest.heard == heard) return progress;
      continue;
    }
    if (guest.challenged || guest.hello().group != kMeeting) return progress;
    if (!ask(guest)) return Progress::Stranger;
  }
}

Visitor Door::visitor(Guest guest) {
  Visitor visitor;
  visitor.hello = guest.hello();
  const std::byte* hello = guest.said.data();
  const std::byte* end_of_hello = hello + visitor.hello.bytes;
  visitor.hello_bytes.assign(hello, end_of_hello);
  visitor.challenge = guest.challenge;
  if (guest.challenged) std::memcpy(visitor.proof.data(), end_of_hello, sizeof(Proof));
  visitor.socket = std::move(guest.socket);
  return visitor;
}

void Door::let_in() {
  // Few at once, so that those who speak are heard before they have to leave.
  for (size_t i = 0; i < (max_guests_ + 3) / 4; ++i) {
    Guest guest;
    guest.socket = accept_one(listener_.get());
    guest.since = monotonic_ns();
    if (guest.socket.ok()) {
      guests_.push_back(std::move(guest));
      if (guests_.size() > max_guests_) guests_.pop_front();
      continue;
    }
    if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
    if (!guests_.empty()) {
      guests_.pop_front();  // gives its descriptor back
    } else {
      paused_until_ = guest.since + kPauseNs;
      return;
    }
  }
}

void Door::drop_late() {
  const int64_t too_early = monotonic_ns() - kPatienceNs;
  while (!guests_.empty() && guests_.front().since < too_early) guests_.pop_front();
}

Deadline Door::next_event(const Deadline& deadline) const {
  Deadline soonest = deadline;
  if (!guests_.empty()) soonest.ns = std::min(soonest.ns, guests_.front().since + kPatienceNs + 1);
  if (paused_until_ > monotonic_ns()) soonest.ns = std::min(soonest.ns, paused_until_);
  return soonest;
}

std::optional<Visitor> Door::next(const Deadline& deadline, std::span<const int> watched) {
  std::vector<pollfd> events;
  while (!deadline.passed()) {  // with many strangers, something is always ready
    const bool paused = paused_until_ > monotonic_ns();
    events.clear();
    events.push_back({deadline.wake, POLLIN, 0});
    events.push_back({paused ? -1 : listener_.get(), POLLIN, 0});
    for (const int descriptor : watched) events.push_back({descriptor, POLLRDHUP, 0});
    const size_t first_guest = events.size();
    for (const Guest& guest : guests_) events.push_back({guest.socket.get(), POLLIN, 0});
    const int ready = poll(events.data(), events.size(), next_event(deadline).left_ms());
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      drop_late();
      continue;
    }
    if (ready < 0 || events[0].revents != 0) return std::nullopt;
    for (size_t i = 2; i < first_guest; ++i) {
      if (events[i].revents != 0) return std::nullopt;
    }
    for (size_t i = guests_.size(); i-- > 0;) {
      if (events[first_guest + i].revents == 0) continue;
      const Progress progress = listen_to(guests_[i]);
      if (progress == Progress::Waiting) continue;
      Guest guest = std::move(guests_[i]);
      guests_.erase(guests_.begin() + static_cast<ptrdiff_t>(i));
      if (progress == Progress::Complete) return visitor(std::move(guest));
    }
    drop_late();
    if (events[1].revents != 0) let_in();
  }
  return std::nullopt;
}

}  // namespace dc::runtime::comm
