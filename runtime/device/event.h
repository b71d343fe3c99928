// Event: a counter that only rises. Streams raise it and wait for it (stream.h).
#pragma once

#include <cstdint>

namespace dc::runtime::device {

// Counting instead of set and reset: a replayed program waits for "the n-th time", so no reset can
// race with a late waiter.
class Event {
 public:
  virtual ~Event() = default;
  // The host sleeps until the counter is at least `value`. False when the event was cancelled
  // instead.
  [[nodiscard]] virtual bool wait(uint32_t value) = 0;
  // Wakes all waiters, streams too, now and in the future, with false.
  virtual void cancel() = 0;
};

}  // namespace dc::runtime::device
