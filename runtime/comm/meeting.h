// How the processes of one host find each other: an abstract unix-domain socket whose name comes
// from the job. Rank 0 is the hub; it hands out descriptors of shared memory. Afterwards the
// sockets only say, by closing, that a process ended.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/launch.h"
#include "runtime/device/memory_map.h"
#include "src/base/status.h"

namespace dc::runtime::comm {

struct Links {
  std::vector<device::Descriptor>
      sockets;  // rank 0: by rank of the peer (own entry empty); others: one, to rank 0
};

// Waits for all ranks; on rank 0 until each is connected, on the others until rank 0 says that all
// are. The first memory handed out, of `control_bytes`, comes with the welcome and is returned too;
// rank 0 makes it and writes the process ids of the peers into `pids` before the welcome goes out,
// through `prepare`.
struct Welcome {
  Links links;
  device::Mapping control;
};
using PrepareControl = std::function<void(std::byte* control, const std::vector<int>& pids)>;
base::Result<Welcome> meet(const LaunchInfo& launch, int64_t control_bytes,
                           const PrepareControl& prepare, std::chrono::milliseconds timeout);

// Rank 0: sends a descriptor to every peer. Never waits for them.
base::Status hand_out(const Links& links, int memory, int64_t bytes);
// Others: takes what rank 0 has already sent.
base::Result<device::Descriptor> take_handed_out(const Links& links, int64_t bytes);

// The id of the process at the other end, in the process namespace of this one; 0 if it has none
// there. Of the socket to rank 0: rank 0's.
int peer_process(int socket);

// What can be wrong when ranks meet, in the words of rank 0.
// Of a rank that came and said rank and world; success if it may stay.
base::Status check_arrival(const LaunchInfo& launch, int rank, int world, bool came_before);
base::Status ended_early(int rank, int pid);
// `peers`: a descriptor of each rank that came; rank 0's own entry does not count.
base::Status ranks_absent(const std::vector<device::Descriptor>& peers,
                          std::chrono::milliseconds timeout);

}  // namespace dc::runtime::comm
