#include "runtime/measure/busy.h"

#include <algorithm>
#include <cmath>

#include "runtime/measure/samples.h"

namespace dc::runtime::measure {
namespace {

// Small enough for tens of microseconds, so that short windows hold many products.
constexpr size_t kSize = 64;
using Matrix = std::vector<float>;

void multiply(const Matrix& a, const Matrix& b, Matrix& c) {
  std::fill(c.begin(), c.end(), 0.0f);
  for (size_t i = 0; i < kSize; ++i) {
    for (size_t k = 0; k < kSize; ++k) {
      const float factor = a[i * kSize + k];
      for (size_t j = 0; j < kSize; ++j) c[i * kSize + j] += factor * b[k * kSize + j];
    }
  }
}

void work(const std::atomic<bool>& stop, std::atomic<int64_t>& products) {
  Matrix a(kSize * kSize, 0.01f), b(kSize * kSize, 1.0f / kSize), c(kSize * kSize);
  while (!stop.load(std::memory_order_relaxed)) {
    multiply(a, b, c);
    std::swap(a, c);  // the next product depends on this one, and all stay finite
    products.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace

Busy::Busy(int threads) {
  for (int i = 0; i < threads; ++i) {
    workers_.push_back(std::make_unique<Worker>());
    Worker& worker = *workers_.back();
    worker.thread = std::thread([this, &worker] { work(stop_, worker.products); });
  }
}

Busy::~Busy() {
  stop_ = true;
  for (const auto& worker : workers_) worker->thread.join();
}

int64_t Busy::products() const {
  int64_t sum = 0;
  for (const auto& worker : workers_) sum += worker->products.load(std::memory_order_relaxed);
  return sum;
}

int64_t slowdown_permille(std::span<const Window> windows) {
  constexpr double kLeast = 1000, kMost = 4000;
  std::vector<int64_t> found;
  for (const auto& [alone, during] : windows) {
    const double slower = static_cast<double>(alone.products) * static_cast<double>(during.time_ns),
                 base = static_cast<double>(alone.time_ns) * static_cast<double>(during.products);
    found.push_back(base <= 0 ? static_cast<int64_t>(kMost)
                              : std::lround(std::clamp(1000 * slower / base, kLeast, kMost)));
  }
  return median_of(std::move(found));
}

}  // namespace dc::runtime::measure
