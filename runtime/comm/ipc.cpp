#include "runtime/comm/ipc.h"

#include <unistd.h>

#include <random>
#include <string>

#include "runtime/comm/agreement.h"
#include "runtime/comm/ipc_communicator.h"
#include "runtime/device/cuda/cuda_sharing.h"

namespace dc::runtime::comm {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;

// Ranks that are threads of one process reach its memory as it is, and the driver maps no process's
// own memory for it. Process ids alone may be equal in different containers.
struct Process {
  int64_t id;
  uint64_t drawn;
  bool operator==(const Process&) const = default;
};
Process own_process() {
  static const uint64_t drawn = std::random_device()() * uint64_t{0x9e3779b97f4a7c15};
  return {getpid(), drawn};
}

// A rank's slab as it tells the others of it.
struct OfferedSlab {
  std::byte* base;
  device::cuda::IpcHandle handle;
};

class IpcProcessGroup final : public ProcessGroup {
 public:
  IpcProcessGroup(std::unique_ptr<ProcessGroup> inner, std::shared_ptr<IpcRank> shared,
                  std::vector<Process> processes)
      : inner_(std::move(inner)), shared_(std::move(shared)), processes_(std::move(processes)) {}
  // Peers may still have this rank's slabs mapped: they stay until the process ends.
  ~IpcProcessGroup() override {
    leave(base::ok_status());
    imported_.clear();
    for (auto& slab : own_) {
      if (is_exported()) (void)slab.release();
    }
  }
  IpcProcessGroup(const IpcProcessGroup&) = delete;
  IpcProcessGroup& operator=(const IpcProcessGroup&) = delete;

  Communicator& control() override { return inner_->control(); }
  device::Device& device() override { return shared_->device; }
  std::string_view name() override { return "ipc"; }

  Result<Slab> allocate(int64_t bytes) override {
    DC_RETURN_IF_ERROR(check_equal_slabs(control(), bytes));
    OfferedSlab own{};
    DC_RETURN_IF_ERROR(agree(control(), offer(bytes, own), "allocating its slab"));
    std::vector<OfferedSlab> all(processes_.size());
    DC_RETURN_IF_ERROR(control().exchange(&own, sizeof own, all.data()));
    std::vector<std::byte*> by_rank;
    DC_RETURN_IF_ERROR(
        agree(control(), map(all, bytes, by_rank), "mapping the slabs of its peers"));
    shared_->slabs.add(std::move(by_rank), bytes);
    return Slab{own.base, bytes};
  }

  Result<std::unique_ptr<Communicator>> open_communicator(std::span<const int> ranks) override {
    if (opened_ == kMaxIpcLinks) {
      return Status(ErrorKind::Internal, "DC6101",
                    "more than " + std::to_string(kMaxIpcLinks) +
                        " communicators in one job; please report this");
    }
    DC_ASSIGN_OR_RETURN(Members members, members_of(ranks, control().rank().v, control().size()));
    DC_RETURN_IF_ERROR(agree_on_members(control(), members));
    return std::unique_ptr<Communicator>(
        std::make_unique<IpcCommunicator>(shared_, std::move(members), opened_++, hosts()));
  }

  void leave(const Status& why) override {
    shared_->watcher->stop(why);
    inner_->leave(why);
  }

 private:
  bool is_mine(size_t rank) const { return processes_[rank] == own_process(); }
  bool is_exported() const {
    return !std::ranges::all_of(processes_, [](const Process& p) { return p == own_process(); });
  }

  Status offer(int64_t bytes, OfferedSlab& own) {
    const int64_t whole = base::round_up(std::max<int64_t>(bytes, 1), device::kExportGranularity);
    DC_ASSIGN_OR_RETURN(auto slab, shared_->device.allocate(whole));
    own.base = slab->base();
    if (is_exported()) {
      DC_ASSIGN_OR_RETURN(own.handle, device::export_memory(shared_->device, *slab));
    }
    own_.push_back(std::move(slab));
    return base::ok_status();
  }

  Status map(const std::vector<OfferedSlab>& all, int64_t bytes, std::vector<std::byte*>& by_rank) {
    for (size_t rank = 0; rank < all.size(); ++rank) {
      if (is_mine(rank)) {
        by_rank.push_back(all[rank].base);
        continue;
      }
      DC_ASSIGN_OR_RETURN(auto slab,
                          device::import_memory(shared_->device, all[rank].handle, bytes));
      by_rank.push_back(slab->base());
      imported_.push_back(std::move(slab));
    }
    return base::ok_status();
  }

  std::unique_ptr<ProcessGroup> inner_;
  std::shared_ptr<IpcRank> shared_;
  std::vector<Process> processes_;  // by rank
  std::vector<std::unique_ptr<device::DeviceMemory>> own_, imported_;
  int opened_ = 0;
};

// What may be wrong on one rank alone, before its first collective.
Status check(ProcessGroup& hosts, const Result<GpuOptions>& gpu) {
  DC_RETURN_IF_ERROR(gpu.status());
  const bool on_host = hosts.control().name() == "local";
  if (on_host && hosts.control().size() <= kMostMappedRanks) return base::ok_status();
  return Status(ErrorKind::Unsupported, "DC6101",
                "at most " + std::to_string(kMostMappedRanks) +
                    " ranks of one host map each other's GPU memory; use NCCL, with --comm tcp");
}

}  // namespace

Result<std::unique_ptr<ProcessGroup>> add_ipc(std::unique_ptr<ProcessGroup> hosts,
                                              Result<GpuOptions> gpu) {
  Communicator& control = hosts->control();
  DC_RETURN_IF_ERROR(agree(control, check(*hosts, gpu), "opening its GPU"));
  auto& device = static_cast<device::CudaDevice&>(*gpu->device);
  const int world = control.size();
  DC_ASSIGN_OR_RETURN(auto memory, hosts->share(IpcPage::bytes(world)));
  auto registered = device::register_host(device, memory);
  DC_RETURN_IF_ERROR(agree(control, registered.status(), "sharing memory with its peers"));
  const IpcPage page(memory->base(), world);
  const Process own = own_process();
  std::vector<Process> processes(static_cast<size_t>(world));
  DC_RETURN_IF_ERROR(control.exchange(&own, sizeof own, processes.data()));
  auto watcher = std::make_unique<IpcWatcher>(control, page, gpu->timeout);
  auto shared = std::make_shared<IpcRank>(
      IpcRank{device, std::move(gpu->sums), std::move(*registered), page, {}, std::move(watcher)});
  std::vector<int> host_of_rank = hosts->hosts();
  auto made =
      std::make_unique<IpcProcessGroup>(std::move(hosts), std::move(shared), std::move(processes));
  made->set_hosts(std::move(host_of_rank));
  return std::unique_ptr<ProcessGroup>(std::move(made));
}

}  // namespace dc::runtime::comm
