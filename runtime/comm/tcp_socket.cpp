#include "runtime/comm/tcp_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/comm/control_page.h"

namespace dc::runtime::comm {
namespace {

// A host that is silent for half a minute is gone: long enough for a switch to restart a port or
// for a host to be moved, far below the time limit of a collective.
constexpr int kSilenceMs = 30'000;
constexpr int kIdleSeconds = 10, kProbeSeconds = 5,
              kProbes = (kSilenceMs / 1000 - kIdleSeconds) / kProbeSeconds;
constexpr int kBacklog = 1024;  // ranks that connect before this one accepts

void set(int socket, int level, int option, int value) {
  setsockopt(socket, level, option, &value, sizeof(value));
}

Address numeric(const sockaddr_storage& storage) {
  char text[INET6_ADDRSTRLEN] = {};
  if (storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    return {text, ntohs(v4.sin_port)};
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
  // An IPv4 connection on a socket that serves both families: hosts without IPv6 need the short
  // form.
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
    inet_ntop(AF_INET, v6.sin6_addr.s6_addr + 12, text, sizeof(text));
  else
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
  return {text, ntohs(v6.sin6_port)};
}

// Waits for `events`; negative: failed, 0: deadline or called off.
int wait_for(int socket, short events, const Deadline& deadline) {
  pollfd list[2] = {{socket, events, 0}, {deadline.wake, POLLIN, 0}};
  for (;;) {
    const int ready = poll(list, 2, deadline.left_ms());
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return ready;
    return list[1].revents == 0 ? 1 : 0;
  }
}

// The errno of the outcome.
int connect_to(const addrinfo& to, const Deadline& deadline, device::Descriptor* out) {
  device::Descriptor s(socket(to.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!s.ok()) return errno;
  keep_alive(s.get(), true);  // limits the try, too
  if (connect(s.get(), to.ai_addr, to.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return errno;
    const int ready = wait_for(s.get(), POLLOUT, deadline);
    if (ready <= 0) return ready == 0 ? ETIMEDOUT : errno;
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(s.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return error;
  }
  keep_alive(s.get(), false);
  *out = std::move(s);
  return 0;
}

}  // namespace

std::string Address::text() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool Address::loopback() const {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

int Deadline::left_ms() const {
  return static_cast<int>(
      std::clamp<int64_t>((ns - monotonic_ns() + 999'999) / 1'000'000, 0, 1'000'000'000));
}

bool Deadline::passed() const { return monotonic_ns() >= ns; }

Connection connect_once(const Address& to, const Deadline& deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* list = nullptr;
  const std::string port = std::to_string(to.port);
  int unknown = getaddrinfo(to.host.c_str(), port.c_str(), &hints, &list);
  if (unknown != 0) {  // a host with nothing but loopback has no address that others reach
    hints.ai_flags = 0;
    unknown = getaddrinfo(to.host.c_str(), port.c_str(), &hints, &list);
  }
  if (unknown != 0) return {device::Descriptor(), 0, gai_strerror(unknown)};
  Connection result;
  for (const addrinfo* one = list; one != nullptr && !result.socket.ok(); one = one->ai_next)
    result.error = connect_to(*one, deadline, &result.socket);
  freeaddrinfo(list);
  if (!result.socket.ok()) result.reason = std::strerror(result.error);
  return result;
}

device::Descriptor listen_at(int port, bool loopback_only) {
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(static_cast<uint16_t>(port));
  v6.sin6_addr = in6addr_any;
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = v6.sin6_port;
  v4.sin_addr.s_addr = htonl(loopback_only ? INADDR_LOOPBACK : INADDR_ANY);
  device::Descriptor s;
  bool bound = false;
  if (!loopback_only) {
    s = device::Descriptor(socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (s.ok()) {
      set(s.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
      set(s.get(), SOL_SOCKET, SO_REUSEADDR, 1);
      bound = bind(s.get(), reinterpret_cast<sockaddr*>(&v6), sizeof(v6)) == 0;
      if (!bound && errno == EADDRINUSE) return device::Descriptor();
    }
  }
  if (!bound) {
    s = device::Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!s.ok()) return s;
    set(s.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (bind(s.get(), reinterpret_cast<sockaddr*>(&v4), sizeof(v4)) != 0)
      return device::Descriptor();
  }
  return listen(s.get(), kBacklog) == 0 ? std::move(s) : device::Descriptor();
}

device::Descriptor accept_one(int listener) {
  device::Descriptor s(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (s.ok()) keep_alive(s.get(), false);
  return s;
}

Address local_address(int socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return {};
  return numeric(storage);
}

Address peer_address(int socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return {};
  return numeric(storage);
}

void keep_alive(int socket, bool strict) {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);  // messages are written whole
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, strict ? kSilenceMs : 0);
}

bool send_whole(int socket, const void* data, size_t bytes, const Deadline& deadline) {
  const auto* at = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(socket, at, bytes, MSG_NOSIGNAL);
    if (sent > 0) {
      at += sent;
      bytes -= static_cast<size_t>(sent);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN || wait_for(socket, POLLOUT, deadline) <= 0) return false;
  }
  return true;
}

bool receive_whole(int socket, void* data, size_t bytes, const Deadline& deadline) {
  auto* at = static_cast<std::byte*>(data);
  while (bytes > 0) {
    const ssize_t got = recv(socket, at, bytes, 0);
    if (got > 0) {
      at += got;
      bytes -= static_cast<size_t>(got);
      continue;
    }
    if (got == 0) return false;
    if (errno == EINTR) continue;
    if (errno != EAGAIN || wait_for(socket, POLLIN, deadline) <= 0) return false;
  }
  return true;
}

bool has_ended(int socket) {
  pollfd event{socket, POLLRDHUP, 0};
  return poll(&event, 1, 0) > 0 && event.revents != 0;
}

bool pause_ms(int64_t milliseconds, const Deadline& deadline) {
  wait_for(-1, 0, {std::min(deadline.ns, monotonic_ns() + milliseconds * 1'000'000)});
  return !deadline.passed();
}

base::Status socket_failed(const std::string& doing, int error) {
  return base::Status(base::ErrorKind::Unavailable, "DC6108",
                      "the ranks cannot connect: " + doing + ": " + std::strerror(error));
}

}  // namespace dc::runtime::comm
