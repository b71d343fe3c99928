#include "runtime/comm/tcp_door.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace dc::runtime {
namespace {

constexpr size_t kMaxGuests = 1024;  // the oldest silent one has to leave

}  // namespace

Door::Progress Door::listen_to(Guest& guest) {
  auto* into = reinterpret_cast<std::byte*>(&guest.hello) + guest.heard;
  const ssize_t got = recv(guest.socket.get(), into, sizeof(Hello) - guest.heard, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Progress::Waiting;
  if (got <= 0) return Progress::Stranger;
  guest.heard += static_cast<size_t>(got);
  const Hello ours;
  const size_t magic = std::min(guest.heard, sizeof(ours.magic));
  if (std::memcmp(guest.hello.magic, ours.magic, magic) != 0) return Progress::Stranger;
  // Another protocol may have a longer or shorter hello, so that is all there is to know about it.
  if (guest.heard >= offsetof(Hello, group) && guest.hello.protocol != kTcpProtocol)
    return Progress::Complete;
  return guest.heard == sizeof(Hello) ? Progress::Complete : Progress::Waiting;
}

void Door::let_in() {
  Guest guest;
  guest.socket = accept_one(listener_.get());
  if (!guest.socket.ok()) return;
  guests_.push_back(std::move(guest));
  if (guests_.size() > kMaxGuests) guests_.pop_front();
}

std::optional<Visitor> Door::next(const Deadline& deadline, std::span<const int> watched) {
  std::vector<pollfd> events;
  for (;;) {
    events.clear();
    events.push_back({deadline.wake, POLLIN, 0});
    events.push_back({listener_.get(), POLLIN, 0});
    for (const int descriptor : watched) events.push_back({descriptor, POLLRDHUP, 0});
    const size_t first_guest = events.size();
    for (const Guest& guest : guests_) events.push_back({guest.socket.get(), POLLIN, 0});
    const int ready = poll(events.data(), events.size(), deadline.left_ms());
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0 || events[0].revents != 0) return std::nullopt;
    for (size_t i = 2; i < first_guest; ++i) {
      if (events[i].revents != 0) return std::nullopt;
    }
    for (size_t i = guests_.size(); i-- > 0;) {
      if (events[first_guest + i].revents == 0) continue;
      const Progress progress = listen_to(guests_[i]);
      if (progress == Progress::Waiting) continue;
      Guest guest = std::move(guests_[i]);
      guests_.erase(guests_.begin() + static_cast<ptrdiff_t>(i));
      if (progress == Progress::Complete) return Visitor{std::move(guest.socket), guest.hello};
    }
    if (events[1].revents != 0) let_in();
  }
}

}  // namespace dc::runtime
