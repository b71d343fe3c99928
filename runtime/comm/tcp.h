// The tcp communicator, for ranks on several hosts: a connection between every two ranks for every
// communicator. Sums are taken in rank order by the owner of the range, so the bits are those of
// the local communicator.
#pragma once

#include "runtime/comm/rendezvous.h"

namespace dc::runtime::comm {

base::Result<std::unique_ptr<ProcessGroup>> connect_tcp(const LaunchInfo& launch,
                                                        const CommOptions& options);

}  // namespace dc::runtime::comm
