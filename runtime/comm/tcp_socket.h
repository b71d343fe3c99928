// TCP sockets for the ranks of a job: addresses, connecting and listening with a deadline, small
// messages in whole. All sockets are non-blocking; who waits sleeps in poll.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/device/memory_map.h"
#include "src/base/status.h"

namespace dc::runtime::comm {

struct Address {
  std::string host;  // a name or a number
  int port = 0;
  std::string text() const;  // "10.0.0.1:29500", "[fe80::1]:29500"
  bool loopback() const;
};

// A wait ends at `ns` of the monotonic clock (monotonic_ns()), or as soon as `wake` (or -1) is
// readable.
struct Deadline {
  int64_t ns = 0;
  int wake = -1;
  int left_ms() const;
  bool passed() const;
};

// One try. `error` is the errno of the last address that was tried, or 0 with `reason` set if the
// name is unknown.
struct Connection {
  device::Descriptor socket;
  int error = 0;
  std::string reason;  // empty if connected
};
Connection connect_once(const Address& to, const Deadline& deadline);

// Listens on every interface, or only on 127.0.0.1; port 0 takes a free one. Empty, with errno set,
// if the port is taken.
device::Descriptor listen_at(int port, bool loopback_only);

device::Descriptor accept_one(int listener);  // empty if none is waiting
Address local_address(int socket);            // numeric
Address peer_address(int socket);

// A connection whose other end has vanished (host gone, cable cut) fails although nothing is sent.
// `strict`: also when something was sent and is not acknowledged; only for connections whose other
// end always reads, because a full receiver counts as silent.
void keep_alive(int socket, bool strict);

// False if the peer closed, or the deadline passed.
bool send_whole(int socket, const void* data, size_t bytes, const Deadline& deadline);
bool receive_whole(int socket, void* data, size_t bytes, const Deadline& deadline);

bool has_ended(int socket);  // the peer closed, or the connection broke; what it said may be unread

// Sleeps, but not past the deadline; false if that has come.
bool pause_ms(int64_t milliseconds, const Deadline& deadline);

base::Status socket_failed(const std::string& doing, int error);  // Unavailable (69), DC6108

}  // namespace dc::runtime::comm
