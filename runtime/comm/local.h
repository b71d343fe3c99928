// The local communicator: ranks of one host whose slabs are mapped by all of them, so that each
// reads its peers' memory directly. The same code serves processes and, in tests, threads; they
// differ only in how memory is shared (RegionSource).
#pragma once

#include <memory>
#include <vector>

#include "runtime/comm/barrier.h"
#include "runtime/comm/mapped_slabs.h"
#include "runtime/comm/rendezvous.h"
#include "runtime/device/memory_map.h"

namespace dc::runtime::comm {

// How the ranks come by memory that all of them see. Destroying it stops watching the peers.
class RegionSource {
 public:
  virtual ~RegionSource() = default;
  // Rank 0 makes zero-filled memory of the device; after a barrier every rank (0 too) takes it.
  // Never waits for a peer.
  virtual base::Status offer(int64_t bytes) = 0;
  virtual base::Result<std::shared_ptr<device::DeviceMemory>> take(int64_t bytes) = 0;
  // This rank is about to leave: the end of its peers is no longer news.
  virtual void stop_watching() {}
};

// What the communicators of one rank share.
struct LocalRank {
  LocalRank(int rank, std::shared_ptr<device::Mapping> control, ControlPage page)
      : rank(rank), control(std::move(control)), page(page) {}
  int rank;
  std::shared_ptr<device::Mapping> control;
  ControlPage page;
  std::chrono::milliseconds timeout{0};
  // They grow in ProcessGroup::allocate only, never during a collective.
  std::vector<std::shared_ptr<device::DeviceMemory>> memories;
  MappedSlabs slabs;
};

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<LocalRank> shared, int group, Members members,
                    const std::vector<int>& hosts = {});
  std::string_view name() const override { return "local"; }
  base::Rank rank() const override { return {members().index}; }
  int size() const override { return members().size(); }
  bool sums_in_rank_order() const override { return true; }
  base::Status all_gather(std::span<const CollectiveBuffer> buffers,
                          device::Stream& stream) override;
  base::Status reduce_scatter(std::span<const CollectiveBuffer> buffers,
                              device::Stream& stream) override;
  base::Status all_reduce(std::span<const CollectiveBuffer> buffers,
                          device::Stream& stream) override;
  base::Status broadcast(void* data, int64_t bytes, base::Rank root) override;
  base::Status exchange(const void* mine, int64_t bytes, void* all) override;
  base::Status barrier() override { return meet(Operation::Barrier); }
  base::Status health() override;
  void abort() override { barrier_.abort(); }
  Traffic traffic() const override { return traffic_.snapshot(); }

  base::Status meet(Operation operation);  // a barrier that says what it is for

 private:
  const Members& members() const { return barrier_.members(); }
  base::Status enter(Operation operation, std::span<const CollectiveBuffer> buffers,
                     uint64_t* fingerprint);
  std::byte* at_peer(const Ref& ref, int peer) const {
    return shared_->slabs.at_peer(ref, members(), peer);
  }
  void gather(const CollectiveBuffer& buffer, const Ref& from, base::DType dtype,
              device::Stream& stream) const;
  void reduce(const CollectiveBuffer& buffer, float* output, device::Stream& stream);

  std::shared_ptr<LocalRank> shared_;
  TrafficCounter traffic_;
  Barrier barrier_;
  std::vector<const void*> inputs_;  // of one reduction, by member
};

class LocalProcessGroup final : public ProcessGroup {
 public:
  LocalProcessGroup(std::shared_ptr<LocalRank> shared, std::unique_ptr<RegionSource> source,
                    device::Device& device);
  ~LocalProcessGroup() override { leave(base::ok_status()); }
  Communicator& control() override { return control_; }
  device::Device& device() override { return device_; }
  base::Result<Slab> allocate(int64_t bytes) override;
  base::Status restrict_reads(const Slab& slab, std::span<const base::ByteRange> read) override;
  base::Result<std::shared_ptr<device::DeviceMemory>> share(int64_t bytes) override;
  base::Result<std::unique_ptr<Communicator>> open_communicator(
      std::span<const int> ranks) override;
  void leave(const base::Status& why) override;

 private:
  std::shared_ptr<LocalRank> shared_;
  std::unique_ptr<RegionSource> source_;
  device::Device& device_;
  LocalCommunicator control_;
  int groups_ = 1;
  bool left_ = false;
};

// Ranks of this host as processes: connects to the others (launch.job names the place). World 1
// needs no other.
base::Result<std::unique_ptr<ProcessGroup>> connect_local(const LaunchInfo& launch,
                                                          const CommOptions& options);

}  // namespace dc::runtime::comm
