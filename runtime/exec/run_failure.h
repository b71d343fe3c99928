// RunFailure: the one failure that a run reports. When several streams fail, add() decides which
// failure is kept. Private to this folder.
#pragma once

#include <atomic>
#include <mutex>

#include "runtime/exec/bound_plan.h"

namespace dc::runtime::exec {

class RunFailure {
 public:
  bool happened() const { return happened_.load(std::memory_order_acquire); }
  base::Status status();  // ok as long as nothing failed
  // The first failure is kept, except that a peer's death replaces any failure before it.
  void add(base::Status status, const plan::Program& program, const Command& command);
  void add(base::Status status);  // of an instruction that is not known

 private:
  std::atomic<bool> happened_{false};
  std::mutex mutex_;
  base::Status status_;
};

}  // namespace dc::runtime::exec
