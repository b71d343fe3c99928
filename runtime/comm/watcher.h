// Notices, while everybody else computes or sleeps, that a peer process ended without a goodbye,
// and puts it on the control page.
#pragma once

#include <thread>
#include <vector>

#include "runtime/comm/control_page.h"
#include "runtime/device/memory_map.h"

namespace dc::runtime::comm {

// Something that becomes ready when `rank` ends: its socket, or a descriptor of the process
// (`process`), which also tells when a child of the dead process still holds the socket open, and
// counts a zombie as dead.
struct Lifeline {
  int rank = 0;
  int descriptor = -1;
  bool process = false;
};

class Watcher {
 public:
  Watcher(ControlPage page, std::vector<Lifeline> lifelines);
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

 private:
  void watch();
  ControlPage page_;
  std::vector<Lifeline> lifelines_;
  device::Descriptor stop_;
  std::thread thread_;
};

// A descriptor that polls readable once the process has ended; not ok() where the kernel or a
// process namespace does not allow it.
device::Descriptor open_process(int pid);

}  // namespace dc::runtime::comm
