#include "runtime/exec/issuing_thread.h"

#include <pthread.h>
#include <signal.h>

#include "runtime/device/short_slices.h"

namespace dc::runtime::exec {
namespace {

class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

IssuingThread::IssuingThread(const std::string& name) {
  BlockedSignals blocked;
  thread_ = std::thread([this] { loop(); });
  pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
}

IssuingThread::~IssuingThread() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void IssuingThread::submit(Work& work) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return count_ < queue_.size(); });
    queue_[(head_ + count_) % queue_.size()] = &work;
    ++count_;
  }
  changed_.notify_all();
}

void IssuingThread::loop() {
  device::prefer_short_slices();
  while (true) {
    Work* work = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return count_ > 0 || stopping_; });
      if (count_ == 0) return;
      work = queue_[head_];
      head_ = (head_ + 1) % queue_.size();
      --count_;
    }
    changed_.notify_all();
    work->run();
  }
}

}  // namespace dc::runtime::exec
