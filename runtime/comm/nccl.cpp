#include "runtime/comm/nccl.h"

#include <cstring>
#include <string>

#include "runtime/comm/agreement.h"
#include "runtime/comm/nccl_communicator.h"
#include "runtime/comm/private_slabs.h"

namespace dc::runtime::comm {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;

Status check_equal_nccl(Communicator& control, int version) {
  std::vector<int> versions(static_cast<size_t>(control.size()));
  DC_RETURN_IF_ERROR(control.exchange(&version, sizeof(version), versions.data()));
  for (size_t rank = 0; rank < versions.size(); ++rank) {
    if (versions[rank] == version) continue;
    return Status(ErrorKind::Mismatch, "DC6162",
                  "rank " + std::to_string(rank) + " has NCCL " +
                      nccl_version_text(versions[rank]) + ", this rank " +
                      nccl_version_text(version) + "; install one version for all ranks");
  }
  return base::ok_status();
}

class NcclProcessGroup final : public ProcessGroup {
 public:
  NcclProcessGroup(std::unique_ptr<ProcessGroup> inner, std::shared_ptr<NcclRank> shared)
      : inner_(std::move(inner)), shared_(std::move(shared)) {}
  ~NcclProcessGroup() override { leave(base::ok_status()); }
  NcclProcessGroup(const NcclProcessGroup&) = delete;
  NcclProcessGroup& operator=(const NcclProcessGroup&) = delete;

  Communicator& control() override { return inner_->control(); }
  device::Device& device() override { return shared_->device; }
  std::string_view name() override { return "nccl"; }

  Result<Slab> allocate(int64_t bytes) override {
    DC_ASSIGN_OR_RETURN(const Slab slab, memory_.allocate(control(), shared_->device, bytes));
    slabs_.push_back(slab);
    return slab;
  }

  Result<std::unique_ptr<Communicator>> open_communicator(std::span<const int> ranks) override {
    DC_ASSIGN_OR_RETURN(Members members, members_of(ranks, control().rank().v, control().size()));
    DC_RETURN_IF_ERROR(agree_on_members(control(), members));
    if (opened_ == kMaxNcclLinks) {
      return Status(ErrorKind::Internal, "DC6101",
                    "more than " + std::to_string(kMaxNcclLinks) +
                        " communicators in one job; please report this");
    }
    NcclId own{};  // of the communicator, if this rank is its first
    auto made = make(members, own);
    DC_RETURN_IF_ERROR(agree(control(), made.status(), "opening a communicator of NCCL"));
    std::vector<NcclId> all(static_cast<size_t>(control().size()));
    DC_RETURN_IF_ERROR(control().exchange(&own, sizeof(own), all.data()));
    DC_RETURN_IF_ERROR((*made)->open(all[static_cast<size_t>(members.at(0))], slabs_));
    return std::unique_ptr<Communicator>(std::move(*made));
  }

  void leave(const Status& why) override {
    shared_->watcher->stop();
    inner_->leave(why);
  }

 private:
  // Everything that may fail on one rank alone.
  Result<std::unique_ptr<NcclCommunicator>> make(const Members& members, NcclId& id) {
    device::CudaDevice& gpu = shared_->device;
    constexpr int64_t kNotes = 2 * sizeof(uint32_t);
    DC_ASSIGN_OR_RETURN(auto notes, gpu.allocate_host(kNotes));
    std::memset(notes->base(), 0, kNotes);
    DC_ASSIGN_OR_RETURN(auto staging,
                        gpu.allocate(std::max<int64_t>(kNcclRoom * (members.size() - 1), 1)));
    if (members.index == 0) {
      const int failed = shared_->library.draw_id(&id);
      if (failed != kNcclSuccess) {
        return Status(ErrorKind::Unavailable, "DC6163",
                      "NCCL cannot begin a communicator: " + shared_->library.explain(failed) +
                          "; set NCCL_DEBUG=WARN to see more, and NCCL_SOCKET_IFNAME to the "
                          "network between the hosts");
      }
    }
    auto link =
        std::make_unique<NcclLink>(shared_->library, gpu, members, opened_++, std::move(notes));
    return std::make_unique<NcclCommunicator>(shared_, std::move(link), std::move(staging),
                                              hosts());
  }

  std::unique_ptr<ProcessGroup> inner_;
  std::shared_ptr<NcclRank> shared_;
  PrivateSlabs memory_;
  std::vector<Slab> slabs_;
  int opened_ = 0;
};

}  // namespace

Result<std::unique_ptr<ProcessGroup>> add_nccl(std::unique_ptr<ProcessGroup> hosts,
                                               Result<GpuOptions> gpu) {
  const auto library = open_nccl_library();
  DC_RETURN_IF_ERROR(agree(hosts->control(), gpu.ok() ? library.status() : gpu.status(),
                           "opening its GPU and NCCL"));
  DC_RETURN_IF_ERROR(check_equal_nccl(hosts->control(), (*library)->version));
  DC_ASSIGN_OR_RETURN(auto board, hosts->open_communicator());
  auto watcher =
      std::make_unique<NcclWatcher>(**library, hosts->control(), std::move(board), gpu->timeout);
  auto shared =
      std::make_shared<NcclRank>(NcclRank{**library, static_cast<device::CudaDevice&>(*gpu->device),
                                          std::move(gpu->sums), std::move(watcher)});
  std::vector<int> host_of_rank = hosts->hosts();
  auto made = std::make_unique<NcclProcessGroup>(std::move(hosts), std::move(shared));
  made->set_hosts(std::move(host_of_rank));
  return std::unique_ptr<ProcessGroup>(std::move(made));
}

}  // namespace dc::runtime::comm
