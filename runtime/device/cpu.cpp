#include <pthread.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "runtime/device/device.h"
#include "runtime/device/short_slices.h"

namespace dc::runtime {
namespace {

// Signals belong to the main thread: a stream starts with all of them blocked.
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

class CpuStream final : public Stream {
 public:
  explicit CpuStream(const std::string& name) {
    BlockedSignals blocked;
    thread_ = std::thread([this] { loop(); });
    pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
  }
  ~CpuStream() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void submit(Work& work) override {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return count_ < queue_.size(); });
      queue_[(head_ + count_) % queue_.size()] = &work;
      ++count_;
    }
    changed_.notify_all();
  }

 private:
  void loop() {
    prefer_short_slices();  // what it waits for comes while other threads compute
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

  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<Work*, 16> queue_{};
  size_t head_ = 0, count_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

class CpuEvent final : public Event {
 public:
  void signal(uint32_t value) override {
    uint32_t current = counter_.load(std::memory_order_relaxed);
    while (current < value) {
      if (counter_.compare_exchange_weak(current, value, std::memory_order_release)) {
        counter_.notify_all();
        return;
      }
    }
  }
  bool wait(uint32_t value) override {
    uint32_t current = counter_.load(std::memory_order_acquire);
    while (current < value) {
      counter_.wait(current, std::memory_order_acquire);
      current = counter_.load(std::memory_order_acquire);
    }
    return current != kCancelled;
  }
  void cancel() override {
    counter_.store(kCancelled, std::memory_order_release);
    counter_.notify_all();
  }

 private:
  static constexpr uint32_t kCancelled = UINT32_MAX;
  std::atomic<uint32_t> counter_{0};
};

class CpuDevice final : public Device {
 public:
  std::string_view name() const override { return "cpu"; }
  std::unique_ptr<Stream> make_stream(const std::string& name) override {
    return std::make_unique<CpuStream>(name);
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<CpuEvent>(); }
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() { return std::make_unique<CpuDevice>(); }

}  // namespace dc::runtime
