// One communicator of NCCL. It does not block: the library does what a call asks for in its own
// time, and the caller sleeps until that is done or the watcher (nccl_watcher.h) ends it. So a peer
// that is gone cannot hold a thread of this process.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/comm/buffers.h"
#include "runtime/comm/members.h"
#include "runtime/comm/nccl_library.h"
#include "runtime/device/cuda/cuda_device.h"

namespace dc::runtime::comm {

int64_t monotonic_ns();  // control_page.h

// The calls of one group, on one stream. After a failure it makes no more.
class NcclGroup {
 public:
  NcclGroup(const NcclLibrary& library, NcclComm handle, device::cuda::StreamHandle stream)
      : library_(library), handle_(handle), stream_(stream), result_(library.begin_group()) {}
  void send(const void* from, int64_t bytes, int peer) {
    add([&](size_t n) { return library_.send(from, n, kNcclBytes, peer, handle_, stream_); },
        bytes);
  }
  void receive(void* to, int64_t bytes, int peer) {
    add([&](size_t n) { return library_.receive(to, n, kNcclBytes, peer, handle_, stream_); },
        bytes);
  }
  // `bytes` of each member.
  void all_gather(const void* from, void* to, int64_t bytes) {
    add([&](size_t n) { return library_.all_gather(from, to, n, kNcclBytes, handle_, stream_); },
        bytes);
  }
  int end() {
    const int ended = library_.end_group();
    return has_failed() ? result_ : ended;
  }

 private:
  bool has_failed() const { return result_ != kNcclSuccess && result_ != kNcclInProgress; }
  template <typename Call>
  void add(Call call, int64_t bytes) {
    if (!has_failed() && bytes > 0) result_ = call(static_cast<size_t>(bytes));
  }

  const NcclLibrary& library_;
  NcclComm handle_;
  device::cuda::StreamHandle stream_;
  int result_;
};

// One thread issues; any thread may fail it and ask how it is.
class NcclLink {
 public:
  // `notes`: 8 bytes, zero, of host memory that the device allocated. `place`: how many were opened
  // in this job before.
  NcclLink(const NcclLibrary& library, const device::CudaDevice& device, Members members, int place,
           std::unique_ptr<device::DeviceMemory> notes)
      : library_(library),
        device_(device),
        members_(std::move(members)),
        place_(place),
        notes_(std::move(notes)) {}
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  const Members& members() const { return members_; }
  int place() const { return place_; }

  // Collective over the members. Sleeps until all are there; fails as the watcher says.
  base::Status open(const NcclId& id);
  // Lets peers reach these bytes of the device directly where the hardware can; else nothing.
  void register_memory(void* memory, int64_t bytes);
  // Notes on the stream that a collective begins, and ends.
  void begin(Operation operation, device::CudaStream& stream);
  void end(device::CudaStream& stream);
  // Issues to the stream what `calls(group)` adds to a group. When this returns, the stream has it.
  template <typename Calls>
  base::Status issue(const device::CudaStream& stream, Calls calls) {
    return run([&] {
      NcclGroup group(library_, handle_, stream.handle());
      calls(group);
      return group.end();
    });
  }
  // Waits until all that was issued is done here, and takes leave of the peers; ends it otherwise
  // if it has failed.
  void close();

  // Ends all work under way on the device, now and for good. The first reason stays, except that
  // the end of a peer explains any other.
  void fail(base::Status why);
  base::Status failure() const;

  // For the watcher. The error that NCCL has, 0 for none.
  int error();
  // The number of the last collective that has begun on the device, and of the last that was
  // issued. Numbers rise, equally on all members, and begin again after 2^32.
  uint32_t begun() const { return note(0); }
  uint32_t issued() const { return issued_.load(); }
  bool is_under_way() const { return note(0) != note(1); }
  // What the device is at, or was last.
  Operation operation() const;
  // When the thread that issues began to wait for NCCL; 0: it does not.
  int64_t waiting_since_ns() const { return waiting_since_.load(); }
  bool is_open() const { return opened_.load(); }

 private:
  static constexpr uint32_t kKindBits = 2;  // of a number, the lowest
  static constexpr Operation kKinds[] = {Operation::AllGather, Operation::ReduceScatter,
                                         Operation::AllReduce};
  uint32_t* word(size_t index) const { return reinterpret_cast<uint32_t*>(notes_->base()) + index; }
  uint32_t note(size_t index) const {
    return std::atomic_ref<uint32_t>(*word(index)).load(std::memory_order_acquire);
  }

  template <typename Call>
  base::Status run(Call call) {
    waiting_since_.store(monotonic_ns());
    base::Status status;
    {
      const std::lock_guard lock(mutex_);
      status = failure_;
      device_.use();
      const int result = status.ok() ? call() : kNcclSuccess;
      if (result != kNcclSuccess && result != kNcclInProgress) error_ = result;
    }
    if (status.ok()) status = settle();
    waiting_since_.store(0);
    return status;
  }
  base::Status settle();

  const NcclLibrary& library_;
  const device::CudaDevice& device_;
  Members members_;
  int place_;
  std::unique_ptr<device::DeviceMemory> notes_;  // the numbers that have begun, and ended
  std::vector<void*> registered_;
  std::atomic<uint32_t> issued_{0};
  std::atomic<int64_t> waiting_since_{0};
  std::atomic<bool> opened_{false};
  mutable std::mutex mutex_;  // of calls and of what follows
  NcclComm handle_ = nullptr;
  int error_ = kNcclSuccess;  // that a call gave
  base::Status failure_;
};

}  // namespace dc::runtime::comm
