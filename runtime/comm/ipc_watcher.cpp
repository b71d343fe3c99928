#include "runtime/comm/ipc_watcher.h"

#include <algorithm>
#include <string>

#include "runtime/comm/control_page.h"

namespace dc::runtime::comm {
namespace {

using base::ErrorKind;
using base::Status;
using std::chrono::milliseconds;

constexpr milliseconds kLook{10}, kRelease{1};
// How long the news of why a rank has given up may take.
constexpr std::chrono::nanoseconds kNewsOfPeer = milliseconds(2000);

Status left_early(int rank, Operation operation) {
  return Status(ErrorKind::PeerDied, "DC6104",
                "rank " + std::to_string(rank) +
                    " left before the others were done while this rank was in " +
                    std::string(name(operation)));
}

}  // namespace

IpcWatcher::IpcWatcher(Communicator& control, IpcPage page, milliseconds timeout)
    : control_(control), page_(page), timeout_(timeout), thread_([this] { watch(); }) {}

void IpcWatcher::add(IpcLink& link) {
  const std::lock_guard lock(mutex_);
  watched_.push_back({&link});
  if (!failure_.ok()) link.fail(failure_);
}

void IpcWatcher::remove(IpcLink& link) {
  const std::lock_guard lock(mutex_);
  std::erase_if(watched_, [&](const Watched& each) { return each.link == &link; });
}

Status IpcWatcher::explain(const IpcLink& link) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopped_ || !failure_.ok(); });
  return link.failure();
}

void IpcWatcher::stop(const Status& why) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    stopped_ = true;
    const bool in_order = why.ok() && std::ranges::none_of(watched_, [](const Watched& each) {
                            return each.link->is_under_way();
                          });
    page_.set_state(control_.rank().v, in_order ? IpcState::Left : IpcState::GaveUp);
    if (failure_.ok()) failure_ = called_off(Operation::Connect);
    for (const Watched& each : watched_) each.link->fail(failure_);
  }
  changed_.notify_all();
  thread_.join();
}

void IpcWatcher::watch() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    if (failure_.ok()) {
      failure_ = look();
      if (!failure_.ok()) {
        for (const Watched& each : watched_) each.link->fail(failure_);
        changed_.notify_all();
      }
    }
    bool any_failed = false;
    for (const Watched& each : watched_) {
      if (each.link->failure().ok()) continue;
      any_failed = true;
      each.link->release();
    }
    changed_.wait_for(lock, any_failed ? kRelease : kLook, [this] { return stopped_; });
  }
}

Status IpcWatcher::look() {
  DC_RETURN_IF_ERROR(control_.health());
  DC_RETURN_IF_ERROR(look_for_given_up());
  for (Watched& each : watched_) DC_RETURN_IF_ERROR(look(each));
  return base::ok_status();
}

Status IpcWatcher::look_for_given_up() {
  for (int rank = 0; rank < page_.world(); ++rank) {
    if (rank == control_.rank().v || page_.state(rank) != IpcState::GaveUp) continue;
    if (given_up_ns_ == 0) given_up_ns_ = monotonic_ns();
    if (monotonic_ns() - given_up_ns_ < kNewsOfPeer.count()) break;
    return Status(ErrorKind::PeerDied, "DC6164",
                  "rank " + std::to_string(rank) +
                      " gave up a collective between GPUs and has not said why; look for that "
                      "rank's own last message");
  }
  return base::ok_status();
}

Status IpcWatcher::look(Watched& watched) const {
  const IpcLink& link = *watched.link;
  const uint32_t arrived = link.arrived();
  std::vector<int> missing = link.missing();
  const int64_t now = monotonic_ns();
  if (missing.empty() || arrived != watched.arrived || watched.since_ns == 0) {
    watched.arrived = arrived;
    watched.since_ns = now;
  }
  if (missing.empty()) return base::ok_status();
  const Operation operation = IpcLink::operation(arrived);
  for (const int rank : missing) {
    if (page_.state(rank) != IpcState::Left) continue;
    // Its numbers were written before it left.
    if (std::ranges::count(link.missing(), rank) > 0) return left_early(rank, operation);
  }
  if (now - watched.since_ns < std::chrono::nanoseconds(timeout_).count()) return base::ok_status();
  return ranks_late(operation, timeout_, missing, !IpcLink::is_first_barrier(arrived));
}

}  // namespace dc::runtime::comm
