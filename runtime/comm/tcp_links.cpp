#include "runtime/comm/tcp_links.h"

#include <unistd.h>

#include <algorithm>
#include <span>
#include <string>

namespace dc::runtime::comm {
namespace {

using base::ErrorKind;
using base::Status;

constexpr int kTries = 5;
constexpr int64_t kPauseMs = 20;

Status ended(const std::string& who) {
  return Status(ErrorKind::PeerDied, "DC6104", who + " ended while the ranks connected");
}

class Opening {
 public:
  Opening(Place& place, uint32_t group, const Members& members, const Deadline& deadline)
      : place_(place),
        group_(group),
        members_(members),
        deadline_(deadline),
        links_(place.seats.size()) {}

  base::Result<std::vector<device::Descriptor>> run(const std::vector<device::Descriptor>& lines) {
    for (const int peer : below()) DC_RETURN_IF_ERROR(call(peer));
    for (size_t missing = above().size(); missing > 0;) {
      DC_ASSIGN_OR_RETURN(const bool came, receive_one(lines));
      missing -= came ? 1 : 0;
    }
    for (const int peer : below()) {
      // A peer that many strangers call may have dropped this rank for one of them.
      for (int tries = 1; !is_accepted(peer); ++tries) {
        if (tries == kTries || !pause_ms(kPauseMs, deadline_) || !call(peer).ok())
          return no_answer(peer);
      }
    }
    return std::move(links_);
  }

 private:
  int world() const { return static_cast<int>(place_.seats.size()); }
  std::span<const int> below() const {
    return std::span(members_.ranks).first(static_cast<size_t>(members_.index));
  }
  std::span<const int> above() const {
    return std::span(members_.ranks).subspan(static_cast<size_t>(members_.index) + 1);
  }
  bool expects(int rank) const {
    const auto ranks = above();
    return std::binary_search(ranks.begin(), ranks.end(), rank);
  }
  int link(int peer) const { return links_[static_cast<size_t>(peer)].get(); }

  Proof prove(std::string_view purpose, int from, int to) const {
    return link_proof(place_.session, purpose, group_, from, to);
  }

  bool is_accepted(int peer) const {
    Proof answer{};
    return receive_whole(link(peer), &answer, sizeof(answer), deadline_) &&
           base::equal_in_constant_time(answer, prove("accept", peer, place_.rank));
  }

  // The kernel of the peer takes the connection and the hello, even if the peer is not there yet.
  Status call(int peer) {
    const Address& where = place_.seats[static_cast<size_t>(peer)].address;
    Connection connection = connect_once(where, deadline_);
    Hello hello;
    hello.group = group_;
    hello.rank = place_.rank;
    hello.world = world();
    hello.pid = getpid();
    hello.proof = prove("call", place_.rank, peer);
    if (connection.socket.ok() &&
        send_whole(connection.socket.get(), &hello, sizeof(hello), deadline_)) {
      links_[static_cast<size_t>(peer)] = std::move(connection.socket);
      return base::ok_status();
    }
    return Status(ErrorKind::Unavailable, "DC6108",
                  "rank " + std::to_string(place_.rank) + " cannot connect to rank " +
                      std::to_string(peer) + " at " + where.text() + " (" + connection.reason +
                      "); see whether that rank still runs, and that no firewall stands between "
                      "the hosts: every rank connects to every other");
  }

  Status no_answer(int peer) const {
    if (!deadline_.passed()) return ended("rank " + std::to_string(peer));
    return Status(ErrorKind::CollectiveTimeout, "DC6103",
                  "rank " + std::to_string(peer) +
                      " did not answer while the ranks connected; see what that rank is doing, or "
                      "raise --timeout");
  }

  base::Result<bool> receive_one(const std::vector<device::Descriptor>& lines) {
    std::vector<int> watched;
    watched.reserve(lines.size());
    for (const device::Descriptor& line : lines) watched.push_back(line.get());
    auto visitor = place_.door.next(deadline_, watched);
    if (!visitor) {
      for (const int peer : above()) {
        if (link(peer) < 0 && deadline_.passed()) return no_answer(peer);
      }
      for (size_t i = 0; i < watched.size(); ++i) {
        if (watched[i] >= 0 && has_ended(watched[i]))
          return ended("rank " + std::to_string(place_.rank == 0 ? i : 0));
      }
      return ended("a rank");
    }
    const Hello& hello = visitor->hello;
    // A stranger, a rank of an earlier start, or one that has lost its way: it is turned away.
    if (hello.protocol != kTcpProtocol || hello.group != group_ || hello.world != world() ||
        !expects(hello.rank) ||
        !base::equal_in_constant_time(hello.proof, prove("call", hello.rank, place_.rank)) ||
        link(hello.rank) >= 0)
      return false;
    const Proof answer = prove("accept", place_.rank, hello.rank);
    if (!send_whole(visitor->socket.get(), &answer, sizeof(answer), deadline_)) return false;
    links_[static_cast<size_t>(hello.rank)] = std::move(visitor->socket);
    return true;
  }

  Place& place_;
  uint32_t group_;
  const Members& members_;
  Deadline deadline_;
  std::vector<device::Descriptor> links_;
};

}  // namespace

base::Result<std::vector<device::Descriptor>> open_links(
    Place& place, uint32_t group, const Members& members, const Deadline& deadline,
    const std::vector<device::Descriptor>& lines) {
  return Opening(place, group, members, deadline).run(lines);
}

}  // namespace dc::runtime::comm
