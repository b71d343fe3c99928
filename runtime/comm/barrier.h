// A barrier of all ranks of one communicator on the control page: a short spin, a short while of
// yielding, then sleep. It also tells who is missing, who died, and whether all ranks came for the
// same thing.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "runtime/comm/buffers.h"
#include "runtime/comm/control_page.h"
#include "runtime/comm/members.h"
#include "src/base/status.h"

namespace dc::runtime::comm {

class Barrier {
 public:
  Barrier(ControlPage page, int group, Members members, std::chrono::milliseconds timeout);

  // One thread at a time. After a failure every later call fails the same way.
  base::Status wait(uint64_t fingerprint);
  // From any thread: this rank's waiter, and every later call, ends with Unavailable.
  void abort();
  const ControlPage& page() const { return page_; }
  int group() const { return group_; }
  const Members& members() const { return members_; }

 private:
  base::Status fail(base::Status status);
  base::Status sleep_until_complete(uint32_t generation, Operation operation);
  // Gives the core away until the barrier is complete (true) or it is time to sleep.
  bool yield_until_complete(uint32_t generation);
  bool shares_core() const;  // whether a peer came to a barrier on this thread's core last
  base::Status reason_to_give_up(Operation operation) const;
  base::Status missing(Operation operation) const;
  base::Status compare(uint64_t fingerprint) const;
  GroupRecord& record() const { return page_.group(group_, members_.at(0)); }

  ControlPage page_;
  int group_;
  Members members_;
  std::chrono::milliseconds timeout_;
  int spins_;
  int64_t no_yield_before_ns_ = 0;  // of the monotonic clock
  uint32_t count_ = 0;              // barriers completed by this rank
  base::Status failure_;
  std::atomic<bool> aborted_{false};
};

}  // namespace dc::runtime::comm
