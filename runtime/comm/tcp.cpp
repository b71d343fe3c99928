#include "runtime/comm/tcp.h"

#include <sys/eventfd.h>
#include <sys/socket.h>

#include <string>

#include "runtime/comm/private_slabs.h"
#include "runtime/comm/tcp_exchange.h"
#include "runtime/comm/tcp_links.h"

namespace dc::runtime::comm {
namespace {

using base::ErrorKind;
using base::Status;

constexpr uint32_t kLifelines = 0, kControl = 1;  // groups; communicators follow

using Mesh = std::vector<device::Descriptor>;  // by rank

// What the communicators of one rank share; the last to go closes it.
struct TcpRank {
  std::unique_ptr<Peers> peers;
  std::chrono::milliseconds timeout{0};
  std::vector<std::unique_ptr<Mesh>> meshes;  // grows in open_communicator only
  PrivateSlabs slabs;
};

class TcpCommunicator final : public Communicator {
 public:
  TcpCommunicator(std::shared_ptr<TcpRank> shared, const Members& members,
                  std::unique_ptr<Exchange> exchange, const std::vector<int>& hosts)
      : shared_(std::move(shared)),
        rank_{members.index},
        size_(members.size()),
        exchange_(std::move(exchange)),
        traffic_(on_other_hosts(members, hosts)) {}
  std::string_view name() const override { return "tcp"; }
  base::Rank rank() const override { return rank_; }
  int size() const override { return size_; }
  bool sums_in_rank_order() const override { return true; }

  Status all_gather(std::span<const CollectiveBuffer> buffers, device::Stream& stream) override {
    return collective(Operation::AllGather, buffers, stream);
  }
  Status reduce_scatter(std::span<const CollectiveBuffer> buffers,
                        device::Stream& stream) override {
    DC_RETURN_IF_ERROR(collective(Operation::ReduceScatter, buffers, stream));
    for (const CollectiveBuffer& b : buffers) zero_tail(b, rank().v, stream);
    return base::ok_status();
  }
  Status all_reduce(std::span<const CollectiveBuffer> buffers, device::Stream& stream) override {
    return collective(Operation::AllReduce, buffers, stream);
  }
  Status broadcast(void* data, int64_t bytes, base::Rank root) override {
    if (root.v < 0 || root.v >= size())
      return Status(ErrorKind::Internal, "DC6101", "broadcast from a rank that does not exist");
    if (rank() == root) traffic_.add_other(bytes * (size() - 1));
    return bytes_of(Operation::Broadcast, data, data, bytes, bytes, root.v);
  }
  Status exchange(const void* mine, int64_t bytes, void* all) override {
    traffic_.add_other(bytes * (size() - 1));
    return bytes_of(Operation::Exchange, mine, all, bytes, bytes * size(), 0);
  }
  Status barrier() override { return meet(Operation::Barrier); }
  Status meet(Operation operation) { return run(operation, {}, 0, fingerprint(operation, 0, 0)); }

  Status health() override { return shared_->peers->health(""); }
  void abort() override { exchange_->abort(); }
  Traffic traffic() const override { return traffic_.snapshot(); }

 private:
  Status collective(Operation operation, std::span<const CollectiveBuffer> buffers,
                    const device::Stream& stream) {
    DC_RETURN_IF_ERROR(check_buffers(operation, buffers, rank().v, size()));
    DC_RETURN_IF_ERROR(
        run(operation, resolved_(buffers, stream), 0, fingerprint(operation, buffers)));
    traffic_.add(operation, buffers, rank().v, size());
    return base::ok_status();
  }
  // Exchange: gathers `shard` bytes from each rank. Broadcast (`shard` equals `whole`): all bytes
  // come from rank `first`.
  Status bytes_of(Operation operation, const void* mine, void* all, int64_t shard, int64_t whole,
                  int first) {
    const CollectiveBuffer buffer{
        {const_cast<void*>(mine), 0}, {all, 0}, base::DType::U8, whole, shard};
    return run(operation, {&buffer, 1}, first, fingerprint(operation, shard, first));
  }
  Status run(Operation operation, std::span<const CollectiveBuffer> buffers, int first,
             uint64_t fingerprint) {
    if (!failure_.ok()) return failure_;
    return finish(exchange_->run(operation, fingerprint, buffers, first));
  }
  Status finish(Status status) {
    if (!status.ok()) failure_ = status;
    return status;
  }

  std::shared_ptr<TcpRank> shared_;
  base::Rank rank_;
  int size_;
  std::unique_ptr<Exchange> exchange_;
  ResolvedBuffers resolved_;
  TrafficCounter traffic_;
  Status failure_;  // a broken communicator stays broken
};

class TcpProcessGroup final : public ProcessGroup {
 public:
  TcpProcessGroup(Gathering& gathering, const CommOptions& options, int rank)
      : shared_(std::make_shared<TcpRank>()),
        device_(*options.device),
        place_{rank, gathering.session, gathering.seats, std::move(gathering.door)} {
    shared_->timeout = options.timeout;
  }
  ~TcpProcessGroup() override { leave(base::ok_status()); }
  TcpProcessGroup(const TcpProcessGroup&) = delete;
  TcpProcessGroup& operator=(const TcpProcessGroup&) = delete;

  // `lines` tell of ranks that end before the lifelines do.
  Status open(const std::vector<device::Descriptor>& lines) {
    DC_ASSIGN_OR_RETURN(shared_->peers, Peers::create(place_.rank, place_.seats));
    DC_ASSIGN_OR_RETURN(Mesh lifelines,
                        open_links(place_, kLifelines, everyone(), deadline(), lines));
    shared_->peers->watch(std::move(lifelines));
    DC_ASSIGN_OR_RETURN(control_, open_group(everyone()));
    return control_->barrier();
  }

  Communicator& control() override { return *control_; }
  device::Device& device() override { return device_; }

  base::Result<Slab> allocate(int64_t bytes) override {
    return shared_->slabs.allocate(*control_, device_, bytes);
  }

  base::Result<std::unique_ptr<Communicator>> open_communicator(
      std::span<const int> ranks) override {
    DC_ASSIGN_OR_RETURN(const Members members, members_of(ranks, place_.rank, control_->size()));
    DC_RETURN_IF_ERROR(control_->meet(Operation::Open));
    DC_RETURN_IF_ERROR(agree_on_members(*control_, members));
    DC_ASSIGN_OR_RETURN(auto communicator, open_group(members));
    return std::unique_ptr<Communicator>(std::move(communicator));
  }

  void leave(const Status& why) override {
    if (left_ || shared_->peers == nullptr) return;
    left_ = true;
    shared_->peers->leave(why);
    // Peers that still wait for this rank must see their connection end, even if the goodbye
    // arrives later.
    for (const auto& mesh : shared_->meshes) {
      for (const device::Descriptor& link : *mesh) {
        if (link.ok()) shutdown(link.get(), SHUT_WR);
      }
    }
  }

 private:
  Members everyone() const { return all_ranks(place_.rank, static_cast<int>(place_.seats.size())); }
  Deadline deadline() const {
    return {monotonic_ns() + std::chrono::nanoseconds(shared_->timeout).count()};
  }

  base::Result<std::unique_ptr<TcpCommunicator>> open_group(const Members& members) {
    const device::Descriptor event(eventfd(0, EFD_CLOEXEC));
    Deadline limit = deadline();
    limit.wake = event.get();
    shared_->peers->add_waiter(event.get());
    auto links = open_links(place_, groups_++, members, limit, {});
    shared_->peers->remove_waiter(event.get());
    if (!links.ok()) {
      DC_RETURN_IF_ERROR(shared_->peers->health(dc::runtime::comm::name(Operation::Open)));
      return links.status();
    }
    shared_->meshes.push_back(std::make_unique<Mesh>(std::move(links).value()));
    DC_ASSIGN_OR_RETURN(auto exchange, Exchange::create(*shared_->peers, members,
                                                        *shared_->meshes.back(), shared_->timeout));
    return std::make_unique<TcpCommunicator>(shared_, members, std::move(exchange), hosts());
  }

  std::shared_ptr<TcpRank> shared_;
  device::Device& device_;
  Place place_;
  std::unique_ptr<TcpCommunicator> control_;
  uint32_t groups_ = kControl;
  bool left_ = false;
};

}  // namespace

base::Result<std::unique_ptr<ProcessGroup>> connect_tcp(const LaunchInfo& launch,
                                                        const CommOptions& options) {
  Gathering gathering;
  if (launch.world > 1) {
    DC_ASSIGN_OR_RETURN(gathering, gather_ranks(launch, options.timeout));
  } else {
    gathering.seats.resize(1);
  }
  auto job = std::make_unique<TcpProcessGroup>(gathering, options, launch.rank);
  if (Status status = job->open(gathering.lines); !status.ok()) {
    job->leave(status);
    return status;
  }
  return std::unique_ptr<ProcessGroup>(std::move(job));
}

}  // namespace dc::runtime::comm
