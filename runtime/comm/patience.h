// How long a rank waits for its peers. Time in which this process itself was stopped (Ctrl-Z, a
// container that was frozen) does not count: its peers were stopped too, and are late for it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace dc::runtime::comm {

class Patience {
 public:
  explicit Patience(std::chrono::nanoseconds limit)
      : looked_(now()), deadline_(looked_ + limit.count()) {}

  // When the waiter must wake and ask again, in nanoseconds of CLOCK_MONOTONIC.
  int64_t next_look() const { return std::min(deadline_, looked_ + kBetweenLooks); }

  // Whether the limit has passed. To be asked after every sleep, which ends at next_look() unless
  // the process was stopped.
  bool is_over() {
    const int64_t time = now(), stopped = time - next_look();
    if (stopped > kLate) deadline_ += stopped;
    looked_ = time;
    return time >= deadline_;
  }

 private:
  // A busy machine may wake a sleeper late; more than that is a stop.
  static constexpr int64_t kBetweenLooks = 1'000'000'000, kLate = 500'000'000;

  static int64_t now() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  int64_t looked_, deadline_;
};

}  // namespace dc::runtime::comm
