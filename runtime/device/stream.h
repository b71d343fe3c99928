// Stream: work in order on a device. Kernels, collectives and copies are given the stream they run
// on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/device/address_window.h"
#include "runtime/device/event.h"
#include "runtime/device/timestamp.h"
#include "src/base/status.h"

namespace dc::runtime::device {

// Addresses are those of the device's memory or of host memory that the device allocated. One
// thread at a time issues to a stream. On a CPU the issuing thread is the stream: a call returns
// when its work is done. On a GPU a call returns when the work is issued.
class Stream {
 public:
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  virtual void copy(std::byte* to, const std::byte* from, int64_t bytes) = 0;  // may overlap
  virtual void fill(std::byte* to, std::byte value, int64_t bytes) = 0;
  // Raises the event's counter when everything issued before is done; values rise.
  virtual void signal(Event& event, uint32_t value) = 0;
  // What is issued afterwards runs when the counter is at least `value`. False when the event was
  // cancelled instead. On a GPU the signal is issued before the wait.
  [[nodiscard]] virtual bool wait(Event& event, uint32_t value) = 0;
  // Notes the time when everything issued before is done; in a recording, each time that its graph
  // comes to this point.
  virtual void write_timestamp(Timestamp& to) = 0;
  // The host sleeps until everything issued is done. The first failure of it, of this and of every
  // later call: Unavailable (69), OutOfMemory (80).
  virtual base::Status drain() = 0;
  // Whether everything issued is done; also when the device has failed.
  virtual bool is_at_rest() const = 0;

  // For work that the host's cores do on this stream: where they find what lies at an address.
  // Only while that work runs; nothing else on the host may look there.
  template <typename T>
  T* resolve(T* address) const {
    return window_.resolve(address);
  }

 protected:
  explicit Stream(AddressWindow window) : window_(window) {}

 private:
  AddressWindow window_;
};

}  // namespace dc::runtime::device
