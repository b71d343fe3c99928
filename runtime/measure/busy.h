// Busy: threads that multiply matrices, as a step's compute would, and how far they get. Private to
// this folder.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace dc::runtime::measure {

class Busy {
 public:
  explicit Busy(int threads);
  ~Busy();  // stops them
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

  int64_t products() const;  // done so far, by all threads together

 private:
  struct Worker {
    std::atomic<int64_t> products{0};
    std::thread thread;
  };
  std::atomic<bool> stop_{false};
  std::vector<std::unique_ptr<Worker>> workers_;
};

// Compute's time during transfers, for a thousand alone, between 1000 and 4000: in `during`
// nanoseconds it got done what takes `alone` nanoseconds without them.
int64_t slowdown_permille(int64_t during, int64_t alone);

}  // namespace dc::runtime::measure
