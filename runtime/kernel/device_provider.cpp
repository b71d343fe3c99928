#include "runtime/device/device.h"
#include "runtime/kernel/kernel.h"

namespace dc::runtime::kernel {

std::unique_ptr<KernelProvider> make_provider(device::Device& device) {
  switch (device.kind()) {
    case base::DeviceKind::Cpu:
    case base::DeviceKind::Checked:
      return make_native_provider();
    case base::DeviceKind::Cuda:
      return make_cuda_provider(device);
  }
  return nullptr;
}

}  // namespace dc::runtime::kernel
