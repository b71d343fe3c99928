#include "runtime/device/host_stream.h"

#include <chrono>
#include <cstring>

namespace dc::runtime::device {

void HostEvent::signal(uint32_t value) {
  uint32_t current = counter_.load(std::memory_order_relaxed);
  while (current < value) {
    if (counter_.compare_exchange_weak(current, value, std::memory_order_release)) {
      counter_.notify_all();
      return;
    }
  }
}

bool HostEvent::wait(uint32_t value) {
  uint32_t current = counter_.load(std::memory_order_acquire);
  while (current < value) {
    counter_.wait(current, std::memory_order_acquire);
    current = counter_.load(std::memory_order_acquire);
  }
  return current != kCancelled;
}

void HostEvent::cancel() {
  counter_.store(kCancelled, std::memory_order_release);
  counter_.notify_all();
}

void HostTimestamp::write() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  time_ns_ = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

base::Result<int64_t> HostTimestamp::since(const Timestamp& earlier) const {
  return time_ns_ - static_cast<const HostTimestamp&>(earlier).time_ns_;
}

void HostStream::copy(std::byte* to, const std::byte* from, int64_t bytes) {
  std::memmove(resolve(to), resolve(from), static_cast<size_t>(bytes));
}

void HostStream::fill(std::byte* to, std::byte value, int64_t bytes) {
  std::memset(resolve(to), static_cast<int>(value), static_cast<size_t>(bytes));
}

void HostStream::signal(Event& event, uint32_t value) {
  static_cast<HostEvent&>(event).signal(value);
}

void HostStream::write_timestamp(Timestamp& to) { static_cast<HostTimestamp&>(to).write(); }

bool HostStream::wait(Event& event, uint32_t value) { return event.wait(value); }

}  // namespace dc::runtime::device
