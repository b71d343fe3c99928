#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/device.h"

namespace dc::runtime::device {

base::Result<Device*> open_checked_device();  // checked.cpp

base::Result<Device*> open_device(base::DeviceKind kind, int local_rank) {
  switch (kind) {
    case base::DeviceKind::Cpu:
      return &cpu_device();
    case base::DeviceKind::Checked:
      return open_checked_device();
    case base::DeviceKind::Cuda:
      return open_cuda_device(local_rank);
  }
  return base::Status(base::ErrorKind::Unavailable, "DC6134",
                      "this build has no device of that kind; please report this");
}

}  // namespace dc::runtime::device
