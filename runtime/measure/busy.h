// Busy: threads that multiply matrices, as a step's compute would, and how far they get. Private to
// this folder.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
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

// Products that were done in a stretch of time.
struct Progressed {
  int64_t time_ns = 0, products = 0;
};
// Next to transfers, and alone right before that.
struct Window {
  Progressed alone, during;
};

// The slowdown of compute by transfers, in thousandths: how much longer a product takes next to
// them, in the median of the windows, clamped to [1000, 4000]. So a program that runs in a few of
// the windows, or that slows all of one, counts for nothing.
int64_t slowdown_permille(std::span<const Window> windows);

}  // namespace dc::runtime::measure
