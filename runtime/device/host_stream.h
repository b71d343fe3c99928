// Streams and events of devices whose kernels the host's cores run: the issuing thread does the
// work.
#pragma once

#include <atomic>

#include "runtime/device/stream.h"

namespace dc::runtime::device {

class HostEvent final : public Event {
 public:
  void signal(uint32_t value);
  bool wait(uint32_t value) override;
  void cancel() override;

 private:
  static constexpr uint32_t kCancelled = UINT32_MAX;
  std::atomic<uint32_t> counter_{0};
};

class HostTimestamp final : public Timestamp {
 public:
  void write();
  base::Result<int64_t> since(const Timestamp& earlier) const override;
  bool is_written() const override { return true; }

 private:
  int64_t time_ns_ = 0;
};

class HostStream final : public Stream {
 public:
  explicit HostStream(AddressWindow window) : Stream(window) {}
  void copy(std::byte* to, const std::byte* from, int64_t bytes) override;
  void fill(std::byte* to, std::byte value, int64_t bytes) override;
  // Of events of such a device.
  void signal(Event& event, uint32_t value) override;
  bool wait(Event& event, uint32_t value) override;
  void write_timestamp(Timestamp& to) override;  // of such a device
  base::Status drain() override { return base::ok_status(); }
  bool is_at_rest() const override { return true; }
};

}  // namespace dc::runtime::device
