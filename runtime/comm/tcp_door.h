// Where a rank receives connections: who comes must say who it is. What is not of this protocol is
// dropped, and so are the silent: no stranger ends a job or keeps its ranks waiting.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "runtime/comm/tcp_proof.h"
#include "runtime/comm/tcp_socket.h"

namespace dc::runtime::comm {

inline constexpr uint32_t kTcpProtocol = 2;  // changes with anything that ranks send each other
inline constexpr uint32_t kMeeting = ~uint32_t{0};  // a Hello::group: to rank 0, before all else

// The first bytes on every connection between ranks. No store of torchrun takes them for a query.
// Up to the nonce, and in its meaning of `bytes`, it is the same in every protocol: so a rank of
// another version can be told from a stranger.
struct Hello {
  char magic[8] = {'d', 'c', 'r', 'u', 'n', 't', 'c', 'p'};
  uint32_t protocol = kTcpProtocol;
  uint32_t bytes = 0;  // of all of it; sizeof(Hello) in this protocol
  uint32_t group = kMeeting;
  Nonce nonce{};  // at the meeting
  int32_t rank = 0, world = 0;
  int32_t pid = 0;
  int32_t port = 0;    // at the meeting: where this rank listens
  char host[48] = {};  // at the meeting: its own address
  Proof proof{};       // otherwise: link_proof("call")
  Hello();
};
inline constexpr size_t kLongestHello = 512;

// At the meeting rank 0 answers a hello with a challenge, and the caller proves ("caller") the
// bytes of its hello. The same in every protocol.
struct Challenge {
  char magic[8] = {'d', 'c', 'r', 'u', 'n', 'a', 's', 'k'};
  Nonce nonce{};
};

struct Visitor {
  device::Descriptor socket;
  Hello hello;                         // of another protocol: only up to `group`
  std::vector<std::byte> hello_bytes;  // what `proof` is of
  Nonce challenge{};                   // at the meeting
  Proof proof{};                       // at the meeting
};

class Door {
 public:
  Door() = default;
  explicit Door(device::Descriptor listener);
  bool ok() const { return listener_.ok(); }
  int port() const { return local_address(listener_.get()).port; }

  // The next visitor who said a whole hello and, at the meeting, answered the challenge; whether
  // the proof is right is for the caller to see. Nothing at the deadline, when it is called off, or
  // when one of `watched` (or -1) has ended.
  std::optional<Visitor> next(const Deadline& deadline, std::span<const int> watched);

 private:
  struct Guest {
    device::Descriptor socket;
    int64_t since = 0;
    bool challenged = false;
    size_t heard = 0;  // bytes, of hello and proof
    std::array<std::byte, kLongestHello + sizeof(Proof)> said{};
    Nonce challenge{};
    Hello hello() const;
    size_t wanted() const;
  };
  enum class Progress { Waiting, Complete, Stranger };
  static Progress read_from(Guest& guest);
  static Progress listen_to(Guest& guest);
  static bool ask(Guest& guest);
  static Visitor visitor(Guest guest);
  void let_in();
  void drop_late();
  Deadline next_event(const Deadline& deadline) const;

  device::Descriptor listener_;
  std::deque<Guest> guests_;  // connected, have not said who they are; oldest first
  size_t max_guests_ = 0;
  int64_t paused_until_ = 0;  // no caller is accepted until then: no descriptor is free
};

}  // namespace dc::runtime::comm
