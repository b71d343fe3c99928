// Watches the communicators of one rank's GPU that wait for peers on the same host: whether a peer
// is gone, has given up, or is late. Then it says why, naming the rank, and lets the streams of
// this rank go on. It needs no call of the driver, which may itself be waiting for the GPU.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/ipc_link.h"

namespace dc::runtime::comm {

class IpcWatcher {
 public:
  // `control`: of all ranks of the job.
  IpcWatcher(Communicator& control, IpcPage page, std::chrono::milliseconds timeout);
  ~IpcWatcher() { stop(base::ok_status()); }
  IpcWatcher(const IpcWatcher&) = delete;
  IpcWatcher& operator=(const IpcWatcher&) = delete;

  // From before a communicator's first collective until after its last is done or has failed.
  void add(IpcLink& link);
  void remove(IpcLink& link);
  // What is found when a member has given up: waits for the news of why, which is not long.
  base::Status explain(const IpcLink& link);
  // This rank leaves, in order or because of a failure. The end of peers is no longer news;
  // communicators that are left fail.
  void stop(const base::Status& why);

 private:
  struct Watched {
    IpcLink* link;
    uint32_t arrived = 0;  // when it was looked at last
    int64_t since_ns = 0;  // since when it waits there
  };
  void watch();
  base::Status look();
  base::Status look(Watched& watched) const;
  base::Status look_for_given_up();

  Communicator& control_;
  IpcPage page_;
  std::chrono::milliseconds timeout_;
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  bool stopped_ = false;
  std::vector<Watched> watched_;
  int64_t given_up_ns_ = 0;  // when that was seen first
  base::Status failure_;
  std::thread thread_;
};

}  // namespace dc::runtime::comm
