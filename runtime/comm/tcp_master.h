// Where rank 0 listens, and how the others come to know: at the master's port; or anywhere, if
// torchrun's store is at that port and can tell; or, on one host without a master, as the ranks of
// the local communicator meet.
#pragma once

#include "runtime/comm/launch.h"
#include "runtime/comm/tcp_door.h"

namespace dc::runtime::comm {

// For an answer that comes at once from a peer that speaks the protocol.
inline constexpr int64_t kPatienceNs = 10'000'000'000;
Deadline sooner(const Deadline& deadline, int64_t nanoseconds);

std::string run_of(const LaunchInfo& launch);  // names this start to all its ranks
// Whether a listener needs no more than 127.0.0.1 when this rank reaches rank 0 through `own`.
bool stays_inside(const LaunchInfo& launch, const Address& own);
// A loopback address was published by a rank that shares the host of the master, so another host
// reaches it where it reached the master.
void make_reachable(Address& published, const Address& master_from_here);

// Rank 0's door, made known.
base::Result<Door> open_to_all(const LaunchInfo& launch, const Deadline& deadline);

// The search of the others.
class Search {
 public:
  static base::Result<Search> create(const LaunchInfo& launch, const Deadline& deadline);
  // A connection to where rank 0 should be.
  base::Result<device::Descriptor> next();
  // It was not rank 0, for that reason: success after a pause, or why the search ends.
  base::Status go_on(const std::string& reason);

 private:
  Search(const LaunchInfo& launch, const Deadline& deadline);
  base::Status go_on(const Connection& failed);
  Connection try_once();

  const LaunchInfo& launch_;
  Deadline deadline_, unreachable_;
  int local_port_ = 0;
  int64_t pause_ = 5;  // ms, growing
};

}  // namespace dc::runtime::comm
