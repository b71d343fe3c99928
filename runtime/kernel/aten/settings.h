// libtorch's switches that an op depends on: the thread count, and whether oneDNN may be used.
#pragma once

#include "runtime/plan/plan.h"

namespace dc::runtime::kernel::aten {

void use_threads(int threads);  // for the calling thread; cheap when it is so already

// oneDNN is far faster for 16-bit matrices and for convolutions. For everything else it is off: its
// f32 gelu allocates 70 times per call.
bool wants_onednn(const plan::Plan& plan, const plan::Instruction& instruction);

// Holds the process-wide oneDNN switch in one position. Threads that want the same position run
// side by side; others wait.
class OneDnnHold {
 public:
  explicit OneDnnHold(bool on);
  ~OneDnnHold();
  OneDnnHold(const OneDnnHold&) = delete;
  OneDnnHold& operator=(const OneDnnHold&) = delete;
};

}  // namespace dc::runtime::kernel::aten
