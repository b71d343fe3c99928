// The nccl communicator: collectives between GPUs, issued to their streams.
//
// NCCL moves the bytes; sums are made by a kernel of ours, in rank order, as everywhere. So each
// rank sends every peer its range of what is reduced, as in the other communicators, and not along
// a ring or tree whose order of sums depends on the machine.
#pragma once

#include <memory>

#include "runtime/comm/device_sums.h"
#include "runtime/comm/nccl_link.h"
#include "runtime/comm/nccl_watcher.h"
#include "runtime/comm/rendezvous.h"

namespace dc::runtime::comm {

// What the communicators of one rank share.
struct NcclRank {
  const NcclLibrary& library;
  device::CudaDevice& device;
  std::unique_ptr<DeviceSums> sums;
  std::unique_ptr<NcclWatcher> watcher;
};

// Bytes of one peer's contributions to a sum that are on this rank's device at a time. Large enough
// that a transfer of so much takes far longer than its launch.
inline constexpr int64_t kNcclRoom = int64_t{4} << 20;

class NcclCommunicator final : public Communicator {
 public:
  // `staging`: kNcclRoom bytes of the device for each peer.
  NcclCommunicator(std::shared_ptr<NcclRank> shared, std::unique_ptr<NcclLink> link,
                   std::unique_ptr<device::DeviceMemory> staging, const std::vector<int>& hosts);
  ~NcclCommunicator() override;
  // Collective over the members; memory that collectives will use is registered.
  base::Status open(const NcclId& id, std::span<const Slab> slabs);

  std::string_view name() const override { return "nccl"; }
  base::Rank rank() const override { return {link_->members().index}; }
  int size() const override { return link_->members().size(); }
  bool sums_in_rank_order() const override { return true; }
  base::Status all_gather(std::span<const CollectiveBuffer> buffers,
                          device::Stream& stream) override;
  base::Status reduce_scatter(std::span<const CollectiveBuffer> buffers,
                              device::Stream& stream) override;
  base::Status all_reduce(std::span<const CollectiveBuffer> buffers,
                          device::Stream& stream) override;
  // Host threads talk through the control communicator of the job. Unsupported (81).
  base::Status broadcast(void* data, int64_t bytes, base::Rank root) override;
  base::Status exchange(const void* mine, int64_t bytes, void* all) override;
  base::Status barrier() override;

  base::Status health() override { return link_->failure(); }
  void abort() override { link_->fail(called_off(link_->operation())); }
  Traffic traffic() const override { return traffic_.snapshot(); }

 private:
  base::Status gather(std::span<const CollectiveBuffer> buffers, bool sums,
                      device::CudaStream& stream);
  base::Status reduce(Operation operation, std::span<const CollectiveBuffer> buffers,
                      device::CudaStream& stream);
  base::Status exchange_round(std::span<const CollectiveBuffer> buffers, int64_t round,
                              const device::CudaStream& stream);
  std::byte* staged(int peer, int64_t place) const {
    return staging_->base() + (peer - (peer > rank().v ? 1 : 0)) * kNcclRoom + place;
  }

  std::shared_ptr<NcclRank> shared_;
  std::unique_ptr<device::DeviceMemory> staging_;
  std::unique_ptr<NcclLink> link_;  // ends before the memory that it uses
  TrafficCounter traffic_;
};

}  // namespace dc::runtime::comm
