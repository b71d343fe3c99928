// IssuingThread: a thread that issues work in order, concurrent with the thread that submits it.
// Private to this folder.
#pragma once

#include <array>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace dc::runtime::exec {

// A piece of work that its owner prepares once and submits many times.
class Work {
 public:
  virtual ~Work() = default;
  virtual void run() = 0;
};

// Sleeps when idle, with all signals blocked (they belong to the main thread) and short slices of
// the scheduler (what it waits for comes while other threads compute).
class IssuingThread {
 public:
  explicit IssuingThread(const std::string& name);
  ~IssuingThread();  // finishes what was submitted
  IssuingThread(const IssuingThread&) = delete;
  IssuingThread& operator=(const IssuingThread&) = delete;

  // Queues `work` behind everything submitted before; it must stay alive until it has run. Waits
  // when the queue is full; allocates nothing.
  void submit(Work& work);

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<Work*, 16> queue_{};
  size_t head_ = 0, count_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace dc::runtime::exec
