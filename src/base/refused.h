// What the system refuses while a program works (a thread, memory), as a failure with a cure.
#pragma once

#include <exception>

#include "src/base/status.h"

namespace dc::base {

// Unavailable (69), DC6013, for a thread or process; OutOfMemory (80), DC6014, for memory; Internal
// (70), DC6015, for any other exception.
Status refused(const std::exception& error);

// Whether the system would give this process so many threads more, now. Libraries that start their
// own (OpenMP) end the process when it does not.
Status try_threads(int count);

// The status that `work` returns, or of what it throws.
template <typename Work>
auto or_refused(const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::exception& error) {
    return refused(error);
  }
}

}  // namespace dc::base
