#include "runtime/device/cuda/cuda_sharing.h"

#include <map>
#include <mutex>
#include <string>

namespace dc::runtime::device {
namespace {

using base::ErrorKind;
using base::Status;

Status not_shared(const CudaDevice& device, int error, const std::string& what) {
  return Status(ErrorKind::Unavailable, "DC6149",
                what + " (" + device.driver().explain(error) +
                    "); let every rank of the host see all its GPUs (CUDA_VISIBLE_DEVICES), in one "
                    "container; or give each a separate GPU, with NCCL and --comm tcp");
}

class ImportedMemory final : public DeviceMemory {
 public:
  ImportedMemory(const CudaDevice& device, cuda::Address address, int64_t bytes)
      : DeviceMemory(cuda::pointer_to(address), bytes), device_(device) {}
  ~ImportedMemory() override {
    device_.use();
    (void)device_.driver().close_import(cuda::address_of(base()));
  }

 private:
  const CudaDevice& device_;
};

class RegisteredMemory final : public DeviceMemory {
 public:
  RegisteredMemory(const CudaDevice& device, std::shared_ptr<DeviceMemory> memory)
      : DeviceMemory(memory->base(), memory->bytes()),
        device_(device),
        memory_(std::move(memory)) {}
  ~RegisteredMemory() override {
    device_.use();
    (void)device_.driver().unregister_host(base());
  }

 private:
  const CudaDevice& device_;
  std::shared_ptr<DeviceMemory> memory_;
};

// What is registered in this process, by address: the driver takes it once.
struct Registrations {
  std::mutex mutex;
  std::map<std::byte*, std::weak_ptr<DeviceMemory>> by_address;
};

}  // namespace

base::Result<cuda::IpcHandle> export_memory(const CudaDevice& device, const DeviceMemory& memory) {
  device.use();
  cuda::IpcHandle handle{};
  const int failed = device.driver().export_memory(&handle, cuda::address_of(memory.base()));
  if (failed == cuda::kSuccess) return handle;
  return not_shared(device, failed,
                    "the driver does not let other processes map this GPU's memory");
}

base::Result<std::unique_ptr<DeviceMemory>> import_memory(const CudaDevice& device,
                                                          const cuda::IpcHandle& handle,
                                                          int64_t bytes) {
  device.use();
  cuda::Address address = 0;
  const int failed = device.driver().import_memory(&address, handle, cuda::kLazyPeerAccess);
  if (failed == cuda::kSuccess) {
    return std::unique_ptr<DeviceMemory>(std::make_unique<ImportedMemory>(device, address, bytes));
  }
  return not_shared(device, failed, "the driver does not map another process's GPU memory");
}

base::Result<std::shared_ptr<DeviceMemory>> register_host(const CudaDevice& device,
                                                          std::shared_ptr<DeviceMemory> memory) {
  static auto* const all = new Registrations();
  const std::lock_guard lock(all->mutex);
  std::weak_ptr<DeviceMemory>& known = all->by_address[memory->base()];
  if (auto registered = known.lock()) return registered;
  device.use();
  std::byte* const at = memory->base();
  int failed = device.driver().register_host(at, static_cast<size_t>(memory->bytes()),
                                             cuda::kPortable | cuda::kDeviceMap);
  if (failed != cuda::kSuccess)
    return not_shared(device, failed, "the GPU does not reach memory that the ranks share");
  std::shared_ptr<DeviceMemory> registered =
      std::make_shared<RegisteredMemory>(device, std::move(memory));
  cuda::Address address = 0;
  failed = device.driver().device_pointer(&address, at, 0);
  if (failed != cuda::kSuccess || address != cuda::address_of(at))
    return not_shared(device, failed, "the GPU has another address for memory of the host");
  known = registered;
  return registered;
}

}  // namespace dc::runtime::device
