#include <cstring>

#include "runtime/device/device.h"
#include "runtime/device/host_stream.h"
#include "runtime/device/memory_map.h"

namespace dc::runtime::device {
namespace {

using Memory = base::Result<std::unique_ptr<DeviceMemory>>;

class MappedMemory : public DeviceMemory {
 public:
  explicit MappedMemory(Mapping mapping)
      : DeviceMemory(mapping.base(), mapping.bytes()), mapping_(std::move(mapping)) {}

 protected:
  Mapping& mapping() { return mapping_; }

 private:
  Mapping mapping_;
};

class SharedMemory final : public MappedMemory {
 public:
  using MappedMemory::MappedMemory;
  base::Status make_private(int64_t offset, int64_t bytes) override {
    return mapping().make_private(offset, bytes);
  }
};

template <typename Held = MappedMemory>
Memory hold(base::Result<Mapping> mapping) {
  if (!mapping.ok()) return std::move(mapping).status();
  return std::unique_ptr<DeviceMemory>(std::make_unique<Held>(std::move(mapping).value()));
}

class CpuDevice final : public Device {
 public:
  base::DeviceKind kind() const override { return base::DeviceKind::Cpu; }

  Memory allocate(int64_t bytes) override { return hold(Mapping::anonymous(bytes)); }
  Memory map_shared(int descriptor, int64_t bytes) override {
    return hold<SharedMemory>(Mapping::shared(descriptor, bytes));
  }
  Memory allocate_host(int64_t bytes) override { return hold(Mapping::committed(bytes)); }

  base::Status upload(std::byte* to, std::span<const std::byte> from) override {
    if (!from.empty()) std::memcpy(to, from.data(), from.size());
    return base::ok_status();
  }
  base::Status download(std::span<std::byte> to, const std::byte* from) override {
    if (!to.empty()) std::memcpy(to.data(), from, to.size());
    return base::ok_status();
  }

  std::unique_ptr<Stream> make_stream() override {
    return std::make_unique<HostStream>(AddressWindow());
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<HostEvent>(); }
  std::unique_ptr<Timestamp> make_timestamp() override { return std::make_unique<HostTimestamp>(); }
};

}  // namespace

Device& cpu_device() {
  static CpuDevice device;
  return device;
}

}  // namespace dc::runtime::device
