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

// The slowdown of compute by transfers, in thousandths: 1000 * during / alone, clamped to [1000,
// 4000]. `alone` and `during`: nanoseconds that the same work takes without and with transfers.
int64_t slowdown_permille(int64_t during, int64_t alone);

}  // namespace dc::runtime::measure
