// Two collectives at once, on two streams and communicators: what sharing the link
// costs them. Private to this folder.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/comm/communicator.h"
#include "runtime/device/device.h"
#include "src/base/measurements.h"
#include "src/base/status.h"

namespace dc::runtime::measure {

struct Repeated {
  comm::Communicator* communicator = nullptr;
  base::Status (comm::Communicator::*run)(std::span<const comm::CollectiveBuffer>,
                                          device::Stream&) = nullptr;
  comm::CollectiveBuffer buffer;
  int64_t repeats = 1;  // the same on all ranks
};

// This rank's times of each, of those that ran wholly while the other was being repeated; none: no
// samples. Begins at once; every rank of both communicators calls it, with the same repeats.
base::Result<std::array<base::Timing, 2>> time_together(device::Device& device,
                                                        const std::array<Repeated, 2>& both);

}  // namespace dc::runtime::measure
