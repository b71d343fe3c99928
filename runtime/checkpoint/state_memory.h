// StateMemory: the elements of a rank's state tensors, wherever they live.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "runtime/device/device.h"
#include "runtime/kernel/kernel.h"
#include "runtime/memory/disk_space.h"
#include "runtime/plan/plan.h"

namespace dc::runtime::checkpoint {

using TensorBinder = std::function<kernel::BoundTensor(int32_t)>;

class StateMemory {
 public:
  static constexpr int64_t kChunkElements = 1 << 16;  // that files are written and read in

  // `bind`: addresses of the device's and the host's tensors. `disk`: where the plan's state on
  // disk lies, if there is any. Plan, device and disk must outlive it. While no step runs, on one
  // thread; what does not lie on disk may be written by several.
  StateMemory(const plan::Plan& plan, device::Device& device, TensorBinder bind,
              memory::DiskSpace* disk)
      : plan_(&plan), device_(&device), bind_(std::move(bind)), disk_(disk) {}

  device::Device& device() const { return *device_; }
  bool is_on_disk(int32_t tensor) const;
  // A tensor in the device's memory; nothing if it is elsewhere.
  std::optional<kernel::BoundTensor> on_device(int32_t tensor) const;
  // Elements [first, first + count) of a tensor in row-major order, side by side at `out` or
  // `from`, in the tensor's dtype.
  base::Status read(int32_t tensor, int64_t first, int64_t count, std::byte* out) const;
  base::Status write(int32_t tensor, int64_t first, int64_t count, const std::byte* from) const;

 private:
  const plan::Plan* plan_;
  device::Device* device_;
  TensorBinder bind_;
  memory::DiskSpace* disk_;
};

}  // namespace dc::runtime::checkpoint
