// The ipc communicator: collectives between GPUs whose slabs each rank maps, as copies and sums
// that are issued to the ranks' streams. Each rank reads what it needs from its peers, between
// barriers of the streams (ipc_link.h); sums are in rank order, as everywhere.
#pragma once

#include <array>
#include <memory>

#include "runtime/comm/device_sums.h"
#include "runtime/comm/ipc_link.h"
#include "runtime/comm/ipc_watcher.h"
#include "runtime/comm/mapped_slabs.h"
#include "runtime/device/cuda/cuda_device.h"

namespace dc::runtime::comm {

// What the communicators of one rank share.
struct IpcRank {
  device::CudaDevice& device;
  std::unique_ptr<DeviceSums> sums;
  std::shared_ptr<device::DeviceMemory> memory;  // of the page
  IpcPage page;
  MappedSlabs slabs;  // grow in ProcessGroup::allocate only, never during a collective
  std::unique_ptr<IpcWatcher> watcher;
};

class IpcCommunicator final : public Communicator {
 public:
  IpcCommunicator(std::shared_ptr<IpcRank> shared, Members members, int place,
                  const std::vector<int>& hosts);
  ~IpcCommunicator() override { shared_->watcher->remove(link_); }

  std::string_view name() const override { return "ipc"; }
  base::Rank rank() const override { return {members().index}; }
  int size() const override { return members().size(); }
  bool sums_in_rank_order() const override { return true; }
  base::Status all_gather(std::span<const CollectiveBuffer> buffers,
                          device::Stream& stream) override;
  base::Status reduce_scatter(std::span<const CollectiveBuffer> buffers,
                              device::Stream& stream) override;
  base::Status all_reduce(std::span<const CollectiveBuffer> buffers,
                          device::Stream& stream) override;
  // Host threads talk through the control communicator of the job. Internal (our bug), DC6101.
  base::Status broadcast(void* data, int64_t bytes, base::Rank root) override;
  base::Status exchange(const void* mine, int64_t bytes, void* all) override;
  base::Status barrier() override;

  // To be asked after a stream was drained: what is wrong by then is known.
  base::Status health() override;
  void abort() override { link_.fail(called_off(IpcLink::operation(link_.arrived()))); }
  Traffic traffic() const override { return traffic_.snapshot(); }

 private:
  const Members& members() const { return link_.members(); }
  base::Status begin(Operation operation, std::span<const CollectiveBuffer> buffers,
                     device::CudaStream& stream);
  // After the last use of peers' memory.
  base::Status end(Operation operation, std::span<const CollectiveBuffer> buffers,
                   device::CudaStream& stream);
  void gather(const CollectiveBuffer& buffer, const Ref& from, base::DType dtype,
              device::Stream& stream) const;
  // The sums of this rank's range.
  void reduce(const CollectiveBuffer& buffer, float* sums, device::Stream& stream);

  std::shared_ptr<IpcRank> shared_;
  IpcLink link_;
  TrafficCounter traffic_;
};

}  // namespace dc::runtime::comm
