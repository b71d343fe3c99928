#include "runtime/measure/busy.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/measure/samples.h"

namespace dc::runtime::measure {

using base::Status;

Busy::Busy(device::Device& device, std::vector<std::unique_ptr<Product>> products)
    : device_(device) {
  for (std::unique_ptr<Product>& product : products) {
    Worker& worker = *workers_.emplace_back(std::make_unique<Worker>());
    worker.product = std::move(product);
    worker.thread = std::thread([this, &worker] { work(worker); });
  }
}

Busy::~Busy() { (void)stop(); }

// A GPU always has some that wait, so that it never waits for the host.
void Busy::work(Worker& worker) const {
  constexpr size_t kAhead = 8;
  std::array<std::unique_ptr<device::Event>, kAhead> events;
  for (auto& event : events) event = device_.make_event();
  const std::unique_ptr<device::Stream> stream = device_.make_stream();
  for (int64_t issued = 0; !stop_.load(std::memory_order_relaxed) && worker.status.ok(); ++issued) {
    device::Event& event = *events[static_cast<size_t>(issued) % kAhead];
    const auto round = static_cast<uint32_t>(issued / kAhead) + 1;
    if (round > 1) {
      if (!event.wait(round - 1)) break;
      worker.done.fetch_add(1, std::memory_order_relaxed);
    }
    worker.status = worker.product->launch(*stream);
    stream->signal(event, round);
  }
  Status drained = stream->drain();
  if (worker.status.ok()) worker.status = std::move(drained);
}

Status Busy::stop() {
  stop_ = true;
  for (const auto& worker : workers_) {
    if (worker->thread.joinable()) worker->thread.join();
  }
  for (const auto& worker : workers_) DC_RETURN_IF_ERROR(worker->status);
  return {};
}

int64_t Busy::products() const {
  int64_t sum = 0;
  for (const auto& worker : workers_) sum += worker->done.load(std::memory_order_relaxed);
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
