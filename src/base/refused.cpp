#include "src/base/refused.h"

#include <latch>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace dc::base {

Status refused(const std::exception& error) {
  if (const auto* system = dynamic_cast<const std::system_error*>(&error);
      system != nullptr && system->code() == std::errc::resource_unavailable_try_again) {
    return Status(ErrorKind::Unavailable, "DC6013",
                  "the system refuses another thread (" + std::string(system->what()) +
                      "); raise the limit on processes (ulimit -u, or the container's limit on "
                      "pids), or start fewer ranks or threads");
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return Status(
        ErrorKind::OutOfMemory, "DC6014",
        "the system refuses more memory; free some, or raise the limit (ulimit -v, or the "
        "container's limit on memory)");
  }
  return Status(ErrorKind::Internal, "DC6015",
                std::string("an unexpected failure: ") + error.what());
}

Status try_threads(int count) {
  std::latch done(1);
  std::vector<std::thread> threads;
  Status status;
  try {
    for (int i = 0; i < count; ++i) threads.emplace_back([&done] { done.wait(); });
  } catch (const std::exception& error) {
    status = refused(error);
  }
  done.count_down();
  for (std::thread& thread : threads) thread.join();
  return status;
}

}  // namespace dc::base
