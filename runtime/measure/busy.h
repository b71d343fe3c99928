// Busy: streams on which matrices are multiplied, as a step's compute would, and how far they get.
// Private to this folder.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "runtime/device/device.h"
#include "src/base/status.h"

namespace dc::runtime::measure {

// Multiplies the same matrices again and again, on a stream of its device.
class Product {
 public:
  virtual ~Product() = default;
  virtual base::Status launch(device::Stream& stream) = 0;
};

class Busy {
 public:
  // A stream for each product.
  Busy(device::Device& device, std::vector<std::unique_ptr<Product>> products);
  ~Busy();  // stops them
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

  int64_t products() const;  // done so far, on all streams together
  base::Status stop();       // and waits for all; the first failure

 private:
  struct Worker {
    std::unique_ptr<Product> product;
    std::atomic<int64_t> done{0};
    base::Status status;
    std::thread thread;
  };
  void work(Worker& worker) const;

  device::Device& device_;
  std::atomic<bool> stop_{false};
  std::vector<std::unique_ptr<Worker>> workers_;
};

// Products that keep a device busy, each tens of microseconds long: one of the host's cores for
// each of `threads`; or a GPU. Unsupported (81), Unavailable (69) if it multiplies no matrices.
base::Result<std::vector<std::unique_ptr<Product>>> make_products(device::Device& device,
                                                                  int threads);

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
