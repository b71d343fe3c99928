// Moves the bytes of one collective between this rank and all its peers at once, by the direct
// algorithm: to each peer, its range (reduction) or this rank's own (gather). Everything is
// allocated when the communicator is opened. The calling thread sleeps whenever no connection can
// move.
//
// On each connection a collective is a header followed by the bytes of the ranges of all its
// buffers, back to back. Gathers arrive where they belong. Contributions to a sum arrive in a
// staging area, in pieces; a piece is summed as soon as it is there from all peers, and what was
// summed goes out again at once if the collective is an all_reduce.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "runtime/comm/buffers.h"
#include "runtime/comm/members.h"
#include "runtime/comm/patience.h"
#include "runtime/comm/tcp_cursor.h"
#include "runtime/comm/tcp_peers.h"
#include "runtime/device/memory_map.h"

namespace dc::runtime::comm {

class Exchange {
 public:
  // `links`: by rank of the job, empty for this one; they and `peers` outlive this.
  static base::Result<std::unique_ptr<Exchange>> create(
      Peers& peers, const Members& members, const std::vector<device::Descriptor>& links,
      std::chrono::milliseconds timeout);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // AllGather, ReduceScatter or AllReduce of checked buffers, or one of the others, which are
  // gathers of bytes in which member `first` counts as member 0. After a failure nothing may be run
  // again.
  base::Status run(Operation operation, uint64_t fingerprint,
                   std::span<const CollectiveBuffer> buffers, int first = 0);
  void abort();  // from any thread

 private:
  struct Link {
    int rank = 0, member = 0, socket = -1;  // rank of the job, place in the communicator
    Cursor out, in;
    Header heard;
    bool full = false;  // the socket takes no more for now
  };

  Exchange(Peers& peers, const Members& members, const std::vector<device::Descriptor>& links,
           std::chrono::milliseconds timeout, device::Mapping staging);
  base::Status start(Operation operation, uint64_t fingerprint,
                     std::span<const CollectiveBuffer> buffers, int first);
  base::Status send_some(Link& link, bool* moved);
  base::Status receive_some(Link& link);
  base::Status sleep(Patience& patience, bool only_look);
  bool sum_arrived();
  void sum(const Piece& piece);
  bool done() const;

  base::Status reason_to_stop();
  base::Status lost(const Link& link);
  base::Status late() const;

  Peers& peers_;
  std::chrono::milliseconds timeout_;
  device::Mapping staging_;
  device::Descriptor event_;  // counts the reasons to look up from the sockets
  std::vector<Link> links_;   // starting with the member after this one
  std::vector<const void*> inputs_;
  std::vector<pollfd> events_;
  std::atomic<bool> aborted_{false};

  Header header_;
  Transfer transfer_;  // what runs
  Operation operation_ = Operation::Barrier;
};

}  // namespace dc::runtime::comm
