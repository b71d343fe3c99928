#include <unistd.h>

#include <mutex>
#include <string>

#include "runtime/comm/affinity.h"
#include "runtime/comm/hosts.h"
#include "runtime/comm/local.h"
#include "runtime/comm/meeting.h"
#include "runtime/comm/plugin.h"
#include "runtime/comm/tcp.h"
#include "runtime/comm/watcher.h"

namespace dc::runtime::comm {
namespace {

using base::ErrorKind;
using base::Status;

// Memory of a rank that is alone in its process space: world 1.
class OwnMemory final : public RegionSource {
 public:
  explicit OwnMemory(device::Device& device) : device_(device) {}
  Status offer(int64_t) override { return base::ok_status(); }
  base::Result<std::shared_ptr<device::DeviceMemory>> take(int64_t bytes) override {
    DC_ASSIGN_OR_RETURN(auto memory, device_.allocate(bytes));
    return std::shared_ptr<device::DeviceMemory>(std::move(memory));
  }

 private:
  device::Device& device_;
};

// Memory passed between processes by descriptor.
class ProcessMemory final : public RegionSource {
 public:
  ProcessMemory(int rank, Links links, device::Device& device)
      : rank_(rank), links_(std::move(links)), device_(device) {}

  void watch(ControlPage page) {
    std::vector<Lifeline> lines;
    if (rank_ != 0) lines.push_back({0, links_.sockets[0].get(), false});
    // The page has process ids as rank 0 sees them. To a rank in another process namespace, as in a
    // container, they are those of strangers; it hears of ends by its socket, and by rank 0.
    const bool knows_ids =
        rank_ == 0 || peer_process(links_.sockets[0].get()) == page.rank(0).pid.load();
    for (int peer = 0; peer < page.world(); ++peer) {
      if (peer == rank_) continue;
      if (rank_ == 0)
        lines.push_back({peer, links_.sockets[static_cast<size_t>(peer)].get(), false});
      if (!knows_ids) continue;
      device::Descriptor process = open_process(page.rank(peer).pid.load());
      if (!process.ok()) continue;
      lines.push_back({peer, process.get(), true});
      processes_.push_back(std::move(process));
    }
    watcher_ = std::make_unique<Watcher>(page, std::move(lines));
  }

  Status offer(int64_t bytes) override {
    DC_ASSIGN_OR_RETURN(offered_, device::make_shared_memory(bytes));
    return hand_out(links_, offered_.get(), bytes);
  }
  base::Result<std::shared_ptr<device::DeviceMemory>> take(int64_t bytes) override {
    if (rank_ != 0) {
      DC_ASSIGN_OR_RETURN(offered_, take_handed_out(links_, bytes));
    }
    DC_ASSIGN_OR_RETURN(auto memory, device_.map_shared(offered_.get(), bytes));
    offered_ = device::Descriptor();
    return std::shared_ptr<device::DeviceMemory>(std::move(memory));
  }
  void stop_watching() override { watcher_.reset(); }

 private:
  int rank_;
  Links links_;
  device::Device& device_;
  device::Descriptor offered_;
  std::vector<device::Descriptor> processes_;
  std::unique_ptr<Watcher> watcher_;  // before what it watches is closed
};

// Memory of ranks that are threads of this process.
struct SharedShelf {
  std::mutex mutex;
  std::vector<std::shared_ptr<device::DeviceMemory>> memories;
};

class ThreadMemory final : public RegionSource {
 public:
  ThreadMemory(std::shared_ptr<SharedShelf> shelf, device::Device& device)
      : shelf_(std::move(shelf)), device_(device) {}
  Status offer(int64_t bytes) override {
    DC_ASSIGN_OR_RETURN(auto memory, device_.allocate(bytes));
    const std::lock_guard lock(shelf_->mutex);
    shelf_->memories.push_back(std::move(memory));
    return base::ok_status();
  }
  base::Result<std::shared_ptr<device::DeviceMemory>> take(int64_t) override {
    const std::lock_guard lock(shelf_->mutex);
    return shelf_->memories.at(taken_++);
  }

 private:
  std::shared_ptr<SharedShelf> shelf_;
  device::Device& device_;
  size_t taken_ = 0;
};

void write_pids(std::byte* control, const std::vector<int>& pids) {
  const ControlPage page(control, static_cast<int>(pids.size()));
  for (size_t rank = 0; rank < pids.size(); ++rank)
    page.rank(static_cast<int>(rank)).pid.store(pids[rank]);
}

std::unique_ptr<LocalProcessGroup> make_process_group(int rank, int world,
                                                      std::shared_ptr<device::Mapping> control,
                                                      const CommOptions& options,
                                                      std::unique_ptr<RegionSource> source) {
  const ControlPage page(control->base(), world);
  auto shared = std::make_shared<LocalRank>(rank, std::move(control), page);
  shared->timeout = options.timeout;
  return std::make_unique<LocalProcessGroup>(std::move(shared), std::move(source), *options.device);
}

}  // namespace

base::Result<std::unique_ptr<ProcessGroup>> connect_local(const LaunchInfo& launch,
                                                          const CommOptions& options) {
  if (!launch.one_host()) {
    return Status(ErrorKind::Unavailable, "DC6123",
                  "the ranks are on several hosts (" + std::to_string(launch.local_world) + " of " +
                      std::to_string(launch.world) +
                      " here), and the local communicator serves one; several hosts need --comm "
                      "tcp, or --comm mpi started by mpirun");
  }
  const int64_t bytes = ControlPage::bytes(launch.world);
  if (launch.world == 1) {
    DC_ASSIGN_OR_RETURN(device::Mapping control, device::Mapping::anonymous(bytes));
    return std::unique_ptr<ProcessGroup>(
        make_process_group(0, 1, std::make_shared<device::Mapping>(std::move(control)), options,
                           std::make_unique<OwnMemory>(*options.device)));
  }
  DC_ASSIGN_OR_RETURN(Welcome welcome, meet(launch, bytes, write_pids, options.timeout));
  auto memory =
      std::make_unique<ProcessMemory>(launch.rank, std::move(welcome.links), *options.device);
  memory->watch(ControlPage(welcome.control.base(), launch.world));
  auto job = make_process_group(launch.rank, launch.world,
                                std::make_shared<device::Mapping>(std::move(welcome.control)),
                                options, std::move(memory));
  DC_RETURN_IF_ERROR(job->control().barrier());
  return std::unique_ptr<ProcessGroup>(std::move(job));
}

std::string_view choose_backend(const LaunchInfo& launch) {
  if (launch.one_host()) return "local";
  const bool by_mpi = launch.launcher == Launcher::OpenMpi || launch.launcher == Launcher::Mpich;
  return by_mpi ? "mpi" : "tcp";
}

namespace {

struct Backend {
  const char* name;
  base::Result<std::unique_ptr<ProcessGroup>> (*connect)(const LaunchInfo&, const CommOptions&);
};
constexpr Backend kBackends[] = {
    {"local", connect_local}, {"mpi", connect_mpi}, {"tcp", connect_tcp}};

base::Result<std::unique_ptr<ProcessGroup>> connect_by(std::string_view name,
                                                       const LaunchInfo& launch,
                                                       const CommOptions& options) {
  for (const Backend& backend : kBackends) {
    if (backend.name == name) return backend.connect(launch, options);
  }
  std::string choices;
  for (const std::string& choice : backend_names())
    choices += (choices.empty() ? "" : ", ") + choice;
  return Status(ErrorKind::Usage, "DC6124",
                "there is no communicator '" + options.backend + "'; choose one of " + choices);
}

}  // namespace

std::vector<std::string> backend_names() {
  std::vector<std::string> names = {"auto"};
  for (const Backend& backend : kBackends) names.emplace_back(backend.name);
  return names;
}

base::Result<std::unique_ptr<ProcessGroup>> connect(const LaunchInfo& launch,
                                                    const CommOptions& options) {
  if (options.threads_per_rank > 0)
    pin_rank(launch.local_rank, launch.local_world, options.threads_per_rank);
  const std::string_view backend =
      options.backend == "auto" ? choose_backend(launch) : std::string_view(options.backend);
  DC_ASSIGN_OR_RETURN(auto job, connect_by(backend, launch, options));
  DC_ASSIGN_OR_RETURN(std::vector<int> hosts, hosts_of_ranks(launch, job->control()));
  job->set_hosts(std::move(hosts));
  return job;
}

std::vector<std::unique_ptr<ProcessGroup>> connect_threads(int ranks, const CommOptions& options) {
  std::vector<std::unique_ptr<ProcessGroup>> jobs;
  auto mapping = device::Mapping::anonymous(ControlPage::bytes(ranks));
  if (!mapping.ok()) return jobs;
  auto control = std::make_shared<device::Mapping>(std::move(mapping).value());
  auto shelf = std::make_shared<SharedShelf>();
  for (int rank = 0; rank < ranks; ++rank) {
    jobs.push_back(make_process_group(rank, ranks, control, options,
                                      std::make_unique<ThreadMemory>(shelf, *options.device)));
  }
  return jobs;
}

}  // namespace dc::runtime::comm
