#include "runtime/comm/nccl_watcher.h"

#include <algorithm>

namespace dc::runtime::comm {
namespace {

using base::ErrorKind;
using base::Status;
using std::chrono::milliseconds;

constexpr milliseconds kLookEvery{10}, kExchangeEvery{1000};
// How long the news of a peer's end may take after NCCL has lost its connection.
constexpr milliseconds kNewsOfPeers{2000};

}  // namespace

NcclWatcher::NcclWatcher(const NcclLibrary& library, Communicator& control,
                         std::unique_ptr<Communicator> board, milliseconds timeout)
    : library_(library),
      control_(control),
      board_(std::move(board)),
      timeout_(timeout),
      all_(static_cast<size_t>(control.size())) {
  exchanging_ = std::thread([this] { exchange_progress(); });
  watching_ = std::thread([this] { watch(); });
}

void NcclWatcher::add(NcclLink& link) {
  const std::lock_guard lock(mutex_);
  watched_.push_back({&link});
  if (!failure_.ok()) link.fail(failure_);
}

void NcclWatcher::remove(NcclLink& link) {
  const std::lock_guard lock(mutex_);
  std::erase_if(watched_, [&](const Watched& each) { return each.link == &link; });
}

void NcclWatcher::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    stopped_ = true;
    if (failure_.ok()) failure_ = called_off(Operation::Connect);
    for (const Watched& each : watched_) each.link->fail(failure_);
  }
  stopping_.notify_all();
  board_->abort();
  watching_.join();
  exchanging_.join();
}

bool NcclWatcher::pause(milliseconds time) {
  std::unique_lock lock(mutex_);
  return !stopping_.wait_for(lock, time, [this] { return stopped_; });
}

// Without the board, as when a peer has left in order, nothing is known of how far peers are.
void NcclWatcher::exchange_progress() {
  std::vector<Progress> all(all_.size());
  const milliseconds period = std::clamp(timeout_ / 8, milliseconds(1), kExchangeEvery);
  do {
    Progress own{};
    {
      const std::lock_guard lock(mutex_);
      for (const Watched& each : watched_)
        own_[static_cast<size_t>(each.link->place())] = each.link->begun();
      own = own_;
    }
    if (!board_->exchange(own.data(), sizeof(own), all.data()).ok()) return;
    const std::lock_guard lock(mutex_);
    all_ = all;
  } while (pause(period));
}

void NcclWatcher::watch() {
  while (pause(kLookEvery)) {
    std::unique_lock lock(mutex_);
    if (!failure_.ok() || stopped_) continue;
    Status found = look(lock);
    if (found.ok() || stopped_) continue;
    failure_ = std::move(found);
    for (const Watched& each : watched_) each.link->fail(failure_);
  }
}

Status NcclWatcher::look(std::unique_lock<std::mutex>& lock) {
  if (watched_.empty()) return base::ok_status();
  DC_RETURN_IF_ERROR(control_.health());
  const int64_t now = monotonic_ns(), limit = std::chrono::nanoseconds(timeout_).count();
  for (Watched& each : watched_) {
    NcclLink& link = *each.link;
    if (const int error = link.error(); error != kNcclSuccess) return explain(link, error, lock);
    const int64_t waiting = link.waiting_since_ns();
    if (waiting != 0 && now - waiting > limit) return late(link, link.issued());
    const uint32_t begun = link.begun();
    if (!link.is_under_way() || begun != each.begun) {
      each.begun = begun;
      each.since_ns = now;
    }
    if (now - each.since_ns > limit) return late(link, begun);
  }
  return base::ok_status();
}

// Connections end with the process at their other end; who that was, the control communicator
// learns about then.
Status NcclWatcher::explain(const NcclLink& link, int error, std::unique_lock<std::mutex>& lock) {
  const std::string text = library_.explain(error);
  const Operation operation = link.operation();
  for (milliseconds waited{0}; waited < kNewsOfPeers && !stopped_; waited += kLookEvery) {
    DC_RETURN_IF_ERROR(control_.health());
    (void)stopping_.wait_for(lock, kLookEvery);
  }
  const bool by_peer = error == kNcclRemoteError;
  const char* cure = error == kNcclInvalidUsage
                         ? "; each rank of a host needs a separate GPU, or --comm auto"
                         : "; set NCCL_DEBUG=WARN to see where, and look for another rank's "
                           "message or for Xid in the kernel's log";
  return Status(by_peer ? ErrorKind::PeerDied : ErrorKind::Unavailable, "DC6163",
                std::string(name(operation)) + " failed in NCCL " +
                    nccl_version_text(library_.version) + ": " + text + cure);
}

Status NcclWatcher::late(const NcclLink& link, uint32_t number) const {
  std::vector<int> missing, others;
  for (const int rank : link.members().ranks) {
    if (rank == link.members().own()) continue;
    others.push_back(rank);
    const uint32_t begun = all_[static_cast<size_t>(rank)][static_cast<size_t>(link.place())];
    if (static_cast<int32_t>(begun - number) < 0) missing.push_back(rank);
  }
  if (!link.is_open()) missing = others;
  return ranks_late(link.operation(), timeout_, missing.empty() ? others : missing,
                    missing.empty());
}

}  // namespace dc::runtime::comm
