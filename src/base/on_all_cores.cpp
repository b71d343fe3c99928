#include "src/base/on_all_cores.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "src/base/refused.h"

namespace dc::base {

Status on_all_cores(int64_t count, const std::function<Status(int64_t)>& work) {
  std::atomic<int64_t> next{0};
  std::mutex mutex;  // of what follows
  Status first_failure;
  int64_t failed = count;
  const auto take_parts = [&] {
    for (int64_t part = next++; part < count; part = next++) {
      Status status = or_refused([&] { return work(part); });
      if (status.ok()) continue;
      const std::scoped_lock lock(mutex);
      if (part > failed) continue;
      failed = part;
      first_failure = std::move(status);
    }
  };
  std::vector<std::thread> others;
  const int64_t cores = std::thread::hardware_concurrency();  // that the process may run on
  try {
    for (int64_t i = 1; i < std::min(cores, count); ++i) others.emplace_back(take_parts);
  } catch (const std::system_error&) {
    // Those that there are do the work.
  }
  take_parts();
  for (std::thread& thread : others) thread.join();
  return first_failure;
}

}  // namespace dc::base
