// Event: a counter that only rises, for which streams wait.
#pragma once

#include <cstdint>

namespace dc::runtime {

// Counting instead of set and reset: a replayed program waits for "the n-th time", so no reset can
// race with a late waiter.
class Event {
 public:
  virtual ~Event() = default;
  // Raises the counter to `value`; values are given in rising order.
  virtual void signal(uint32_t value) = 0;
  // Sleeps until the counter is at least `value`. False when the event was cancelled instead.
  [[nodiscard]] virtual bool wait(uint32_t value) = 0;
  // Wakes all waiters, now and in the future, with false.
  virtual void cancel() = 0;
};

}  // namespace dc::runtime
