#include "runtime/comm/nccl_link.h"

#include <algorithm>
#include <thread>

namespace dc::runtime::comm {

using base::ErrorKind;
using base::Status;

NcclLink::~NcclLink() { close(); }

Status NcclLink::open(const NcclId& id) {
  Status status = run([&] {
    NcclConfig config;
    return library_.open(&handle_, members_.size(), id, members_.index, &config);
  });
  opened_.store(status.ok());
  return status;
}

// Longer each time: what NCCL does for one collective takes microseconds, connecting seconds.
Status NcclLink::settle() {
  constexpr std::chrono::microseconds kLongest{1000};
  for (std::chrono::microseconds pause{5};; pause = std::min(2 * pause, kLongest)) {
    {
      const std::lock_guard lock(mutex_);
      if (!failure_.ok()) return failure_;
      int state = kNcclSuccess;
      // What fails is the watcher's to explain.
      if (error_ == kNcclSuccess && library_.state(handle_, &state) == kNcclSuccess &&
          state == kNcclSuccess)
        return base::ok_status();
    }
    std::this_thread::sleep_for(pause);
  }
}

void NcclLink::register_memory(void* memory, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  void* registered = nullptr;
  if (failure_.ok() && library_.register_memory(handle_, memory, static_cast<size_t>(bytes),
                                                &registered) == kNcclSuccess)
    registered_.push_back(registered);
}

void NcclLink::begin(Operation operation, device::CudaStream& stream) {
  const auto kind = static_cast<uint32_t>(std::ranges::find(kKinds, operation) - kKinds);
  issued_.store((((issued() >> kKindBits) + 1) << kKindBits) | kind);
  stream.write(word(0), issued_.load());
}
void NcclLink::end(device::CudaStream& stream) { stream.write(word(1), issued_.load()); }

Operation NcclLink::operation() const {
  if (!is_open()) return Operation::Open;
  return kKinds[(is_under_way() ? note(0) : issued_.load()) & ((1U << kKindBits) - 1)];
}

void NcclLink::close() {
  if (failure().ok() && opened_.exchange(false)) {
    (void)run([&] {
      for (void* each : registered_) (void)library_.deregister_memory(handle_, each);
      return library_.finalize(handle_);
    });
  }
  const std::lock_guard lock(mutex_);
  if (handle_ == nullptr) return;
  device_.use();
  (void)library_.destroy(handle_);
  handle_ = nullptr;
}

void NcclLink::fail(Status why) {
  const std::lock_guard lock(mutex_);
  const bool explains =
      !failure_.ok() && why.kind() == ErrorKind::PeerDied && failure_.kind() != ErrorKind::PeerDied;
  if (failure_.ok() || explains) failure_ = std::move(why);
  if (handle_ == nullptr) return;
  device_.use();
  // Locked: until it returns NCCL uses streams and memory, and who learns of the failure frees
  // them.
  (void)library_.abort(handle_);
  handle_ = nullptr;
}

Status NcclLink::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

int NcclLink::error() {
  const std::lock_guard lock(mutex_);
  if (!failure_.ok()) return kNcclSuccess;
  if (error_ != kNcclSuccess || handle_ == nullptr) return error_;
  int state = kNcclSuccess;
  const int asked = library_.state(handle_, &state);
  if (asked != kNcclSuccess) return asked;
  return state == kNcclInProgress ? kNcclSuccess : state;
}

}  // namespace dc::runtime::comm
