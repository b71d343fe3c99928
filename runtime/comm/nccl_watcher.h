// Watches the communicators of NCCL of one rank: whether a peer is gone, whether NCCL has an error,
// whether a collective takes too long. Then it says why, naming the rank, and ends all of them.
//
// GPUs wait for each other without the hosts, so the hosts tell each other how far their GPUs are:
// several times a timeout, at least every second, all ranks exchange the numbers of the collectives
// that have begun (4 bytes for each communicator).
#pragma once

#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/nccl_link.h"

namespace dc::runtime::comm {

inline constexpr int kMaxNcclLinks = 64;  // times that communicators are opened in a job

class NcclWatcher {
 public:
  // `control` and `board` are of all ranks of the job; the board is used for nothing else.
  NcclWatcher(const NcclLibrary& library, Communicator& control,
              std::unique_ptr<Communicator> board, std::chrono::milliseconds timeout);
  ~NcclWatcher() { stop(); }
  NcclWatcher(const NcclWatcher&) = delete;
  NcclWatcher& operator=(const NcclWatcher&) = delete;

  // From before it is opened until after it is closed.
  void add(NcclLink& link);
  void remove(NcclLink& link);
  // The end of peers is no longer news; communicators that are left are ended.
  void stop();

 private:
  using Progress = std::array<uint32_t, kMaxNcclLinks>;  // by place

  void watch();
  void exchange_progress();
  // False when the watcher is to stop.
  bool pause(std::chrono::milliseconds time);
  base::Status look(std::unique_lock<std::mutex>& lock);
  base::Status look(NcclLink& link, std::unique_lock<std::mutex>& lock);
  base::Status explain(const NcclLink& link, int error, std::unique_lock<std::mutex>& lock);
  base::Status late(const NcclLink& link, uint32_t number) const;

  struct Watched {
    NcclLink* link;
    uint32_t begun = 0;    // when it was looked at last
    int64_t since_ns = 0;  // since when it is at that
  };
  const NcclLibrary& library_;
  Communicator& control_;
  std::unique_ptr<Communicator> board_;
  std::chrono::milliseconds timeout_;
  std::mutex mutex_;  // of what follows
  std::condition_variable stopping_;
  bool stopped_ = false;
  std::vector<Watched> watched_;
  base::Status failure_;
  Progress own_{};
  std::vector<Progress> all_;  // by rank
  std::thread exchanging_, watching_;
};

}  // namespace dc::runtime::comm
