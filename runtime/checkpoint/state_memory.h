// StateMemory: the elements of a rank's state tensors, wherever they live.
#pragma once

#include <cstdint>
#include <functional>

#include "runtime/kernel/kernel.h"
#include "runtime/memory/disk_space.h"
#include "runtime/plan/plan.h"

namespace dc::runtime {

using TensorBinder = std::function<BoundTensor(int32_t)>;

class StateMemory {
 public:
  // `disk`: where the plan's state on disk lies, if there is any. The plan and the disk must
  // outlive it. While no step runs, on one thread.
  StateMemory(const plan::Plan& plan, TensorBinder bind, DiskSpace* disk)
      : plan_(&plan), bind_(std::move(bind)), disk_(disk) {}

  bool is_on_disk(int32_t tensor) const;
  // Elements [first, first + count) of a tensor in row-major order, side by side at `out` or
  // `from`, in the tensor's dtype.
  base::Status read(int32_t tensor, int64_t first, int64_t count, std::byte* out) const;
  base::Status write(int32_t tensor, int64_t first, int64_t count, const std::byte* from) const;

 private:
  const plan::Plan* plan_;
  TensorBinder bind_;
  DiskSpace* disk_;
};

}  // namespace dc::runtime
