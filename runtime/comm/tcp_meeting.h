// How ranks of several hosts find each other: everybody connects to rank 0 and hears from it where
// all others listen.
#pragma once

#include <chrono>
#include <vector>

#include "runtime/comm/launch.h"
#include "runtime/comm/tcp_door.h"

namespace dc::runtime::comm {

struct Seat {  // where a rank can be reached from this one
  Address address;
  int pid = 0;
};

struct Gathering {
  std::string session;      // a key of this start: later hellos prove it (link_proof)
  std::vector<Seat> seats;  // by rank
  Door door;                // this rank's
  // To rank 0 (on rank 0: by rank, own entry empty). That they are open says that the other end
  // lives; needed until the ranks watch each other.
  std::vector<device::Descriptor> lines;
};

base::Result<Gathering> gather_ranks(const LaunchInfo& launch, std::chrono::milliseconds timeout);

}  // namespace dc::runtime::comm
