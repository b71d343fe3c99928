// A connection to each peer: what one communicator sends through.
#pragma once

#include <vector>

#include "runtime/comm/members.h"
#include "runtime/comm/tcp_meeting.h"

namespace dc::runtime::comm {

// What connecting needs to know.
struct Place {
  int rank = 0;
  std::string session;      // the key of link proofs
  std::vector<Seat> seats;  // by rank
  Door door;
};

// Connects to the members below and waits for those above, which do likewise for the same `group`,
// a number that these ranks never used in this job. By rank of the job; empty for this one and for
// those that are no members. `lines`: sockets (or none) whose end tells that a rank has ended;
// `deadline.wake` calls the opening off (PeerDied).
base::Result<std::vector<device::Descriptor>> open_links(
    Place& place, uint32_t group, const Members& members, const Deadline& deadline,
    const std::vector<device::Descriptor>& lines);

}  // namespace dc::runtime::comm
