// Opens communicators.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/launch.h"
#include "runtime/comm/members.h"
#include "runtime/device/device.h"
#include "src/base/byte_range.h"

namespace dc::runtime::comm {

// A rank's memory for values, on its device. With the local communicator it is a shared mapping
// that peers read directly.
struct Slab {
  std::byte* base = nullptr;
  int64_t bytes = 0;
};

struct CommOptions {
  std::string backend = "auto";               // one of backend_names()
  std::chrono::milliseconds timeout{600000};  // a collective that takes longer is CollectiveTimeout
                                              // (82), naming the ranks that are missing
  int threads_per_rank =
      0;  // of this host's ranks; 0 leaves the affinity of the process alone (see affinity.h)
  device::Device* device = &device::cpu_device();  // that slabs are allocated on; outlives the job
};

// The ranks of a job, connected. Creation is collective. Destroying it is an orderly goodbye: peers
// that still wait for this rank end with PeerDied, others do not mind.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  virtual Communicator& control() = 0;  // for the host thread: digest exchange, stop flags, save
  virtual device::Device& device() = 0;
  // What carries the collectives: the name of the communicators that it opens.
  virtual std::string_view name() { return control().name(); }
  // Allocates this rank's slab on the device: zero-filled, 64-byte aligned, shared with the peers
  // where the backend needs it. Collective: all ranks call it with the same `bytes`. The slab
  // lives as long as the job. May be called again, but not while a collective runs; all slabs of a
  // job may be used in collectives. Opens no communicator: open_communicator() opens one per call.
  virtual base::Result<Slab> allocate(int64_t bytes) = 0;
  // Says which bytes of a slab collectives read at other ranks, in the form of base::merged() and
  // the same on all ranks; a collective that reads others fails (DC6101). What else is mapped by
  // all may then become memory of this process. Before anything is written to the slab.
  // OutOfMemory (80).
  virtual base::Status restrict_reads([[maybe_unused]] const Slab& slab,
                                      [[maybe_unused]] std::span<const base::ByteRange> read) {
    return base::ok_status();
  }
  // Zero-filled memory of the device that all ranks map, where they can: of the host's ranks by the
  // local communicator. Collective: all ranks call it with the same `bytes`. Unsupported (81).
  virtual base::Result<std::shared_ptr<device::DeviceMemory>> share(
      [[maybe_unused]] int64_t bytes) {
    // Here, so that plug-ins need nothing of the program.
    return base::Status(base::ErrorKind::Unsupported, "DC6101",
                        "ranks that need not share a host were asked for memory that all of them "
                        "map; please report this");
  }
  // After allocate. Of `ranks`, ascending, this one among them. All ranks of the job call it, in
  // the same order; those that name the same ranks get a communicator of these.
  virtual base::Result<std::unique_ptr<Communicator>> open_communicator(
      std::span<const int> ranks) = 0;
  base::Result<std::unique_ptr<Communicator>> open_communicator() {  // of all ranks
    return open_communicator(all_ranks(control().rank().v, control().size()).ranks);
  }
  // Goodbye before destruction. A failure is passed on: peers end with PeerDied, naming this rank
  // and repeating the sentence.
  virtual void leave(const base::Status& why) = 0;

  // The host of each rank (hosts.h); empty where it is not known. Communicators opened after
  // set_hosts() count what they send to other hosts.
  const std::vector<int>& hosts() const { return hosts_; }
  void set_hosts(std::vector<int> hosts) { hosts_ = std::move(hosts); }

 private:
  std::vector<int> hosts_;
};

// "auto" and the communicators that there are.
std::vector<std::string> backend_names();
// What "auto" stands for: local if all ranks share a host; otherwise mpi under mpirun, else tcp.
std::string_view choose_backend(const LaunchInfo& launch);
base::Result<std::unique_ptr<ProcessGroup>> connect(const LaunchInfo& launch,
                                                    const CommOptions& options);
// Ranks as threads of one process, for tests: returns one job per rank.
std::vector<std::unique_ptr<ProcessGroup>> connect_threads(int ranks, const CommOptions& options);

}  // namespace dc::runtime::comm
