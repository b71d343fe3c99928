// How the GPUs of one communicator wait for each other: barriers on streams. A barrier is a number
// that each rank's stream writes for every peer when it comes there, and for which the peers'
// streams wait. No kernel spins: ranks that are processes take turns on a GPU that they share.
//
// Numbers rise. All ranks come to the same barriers in the same order, and a rank writes its number
// before it waits, so the first barrier that is not complete is always one that somebody is still
// on the way to: that holds too where a GPU has fewer queues than there are streams.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/comm/buffers.h"
#include "runtime/comm/ipc_page.h"
#include "runtime/comm/members.h"
#include "runtime/device/cuda/cuda_device.h"

namespace dc::runtime::comm {

// One thread issues; any thread may fail it and ask how it is.
class IpcLink {
 public:
  // `page` lies in `memory`. `place`: how many were opened in this job before.
  IpcLink(std::shared_ptr<device::DeviceMemory> memory, IpcPage page, Members members, int place)
      : memory_(std::move(memory)), page_(page), members_(std::move(members)), place_(place) {}

  const Members& members() const { return members_; }

  // Issues the first barrier of a collective; what is issued to the stream next runs when all
  // members have come there. Fails if the link or an earlier call of the stream has: then nothing
  // was issued, and peers are not told that this rank came.
  base::Status begin(Operation operation, device::CudaStream& stream);
  // The next barrier of the same collective.
  base::Status meet(device::CudaStream& stream);

  // Lets all streams of this rank go on, now and for good, and the peers know. The first reason
  // stays, except that the end of a peer explains any other.
  void fail(base::Status why);
  base::Status failure() const;
  // Whether a member other than this rank has given up.
  bool is_given_up() const;

  // For the watcher, again and again after a failure: a peer that goes on writes its numbers, which
  // may be smaller than what streams here wait for.
  void release() const;
  // Whether this rank's GPU has barriers before it, or is at one.
  bool is_under_way() const { return arrived() != issued_.load() || !missing().empty(); }
  // The number of the barrier that this rank's GPU has come to last.
  uint32_t arrived() const { return read(members_.own()); }
  // The members, as ranks of the job, that have not come to the barrier where this rank's GPU is.
  std::vector<int> missing() const;
  static Operation operation(uint32_t number);
  static bool is_first_barrier(uint32_t number) { return (number & kStages) == 0; }

 private:
  // Of a number: the collective's count, its kind, the barrier within it.
  static constexpr uint32_t kStages = 3, kKindShift = 2, kKinds = 3, kCountShift = 4;
  uint32_t read(int sender) const {
    return std::atomic_ref(*page_.number(place_, members_.own(), sender))
        .load(std::memory_order_acquire);
  }

  std::shared_ptr<device::DeviceMemory> memory_;
  IpcPage page_;
  Members members_;
  int place_;
  std::atomic<uint32_t> issued_{0};
  mutable std::mutex mutex_;
  base::Status failure_;
};

}  // namespace dc::runtime::comm
