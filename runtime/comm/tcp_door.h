// Where a rank receives connections: who comes must say who it is. Strangers are turned away, and
// the silent keep nobody waiting.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/comm/tcp_socket.h"

namespace dc::runtime {

using Token = std::array<uint8_t, 16>;

inline constexpr uint32_t kTcpProtocol = 1;  // changes with anything that ranks send each other
inline constexpr uint32_t kMeeting = ~uint32_t{0};  // a Hello::group: to rank 0, before all else

// The first bytes on every connection between ranks. No store of torchrun takes them for a query.
struct Hello {
  char magic[8] = {'d', 'c', 'r', 'u', 'n', 't', 'c', 'p'};
  uint32_t protocol = kTcpProtocol;
  uint32_t group = kMeeting;
  int32_t rank = 0, world = 0;
  int32_t pid = 0;
  int32_t port = 0;    // at the meeting: where this rank listens
  char host[48] = {};  // at the meeting: its own address
  Token token{};       // at the meeting of the job's name, later the one that rank 0 drew
};

struct Visitor {
  Descriptor socket;
  Hello hello;
};

class Door {
 public:
  Door() = default;
  explicit Door(Descriptor listener) : listener_(std::move(listener)) {}
  bool ok() const { return listener_.ok(); }
  int port() const { return local_address(listener_.get()).port; }

  // The next visitor who said a whole hello of this protocol; nothing at the deadline, when it is
  // called off, or when one of `watched` (or -1) has ended.
  std::optional<Visitor> next(const Deadline& deadline, std::span<const int> watched);

 private:
  struct Guest {
    Descriptor socket;
    Hello hello;
    size_t heard = 0;  // bytes
  };
  enum class Progress { Waiting, Complete, Stranger };
  static Progress listen_to(Guest& guest);
  void let_in();

  Descriptor listener_;
  std::deque<Guest> guests_;  // connected, have not said who they are; oldest first
};

}  // namespace dc::runtime
