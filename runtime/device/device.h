// Device: where kernels run and values lie. Everything that reaches its memory goes through it or
// through one of its streams; the host's code never reads or writes at a device address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/device/device_memory.h"
#include "runtime/device/event.h"
#include "runtime/device/graph.h"
#include "runtime/device/stream.h"
#include "src/base/device_kind.h"
#include "src/base/machine_identity.h"
#include "src/base/status.h"

namespace dc::runtime::device {

// May be used by several threads at once.
class Device {
 public:
  virtual ~Device() = default;
  virtual base::DeviceKind kind() const = 0;
  // Whether the host goes on while streams work.
  virtual bool works_beside_host() const { return false; }

  // Memory is zero-filled and aligned to a page. OutOfMemory (80) if there is none.
  virtual base::Result<std::unique_ptr<DeviceMemory>> allocate(int64_t bytes) = 0;
  // Memory of all ranks of a host: every rank passes the same sealed shared memory
  // (make_shared_memory in memory_map.h).
  virtual base::Result<std::unique_ptr<DeviceMemory>> map_shared(int descriptor, int64_t bytes) = 0;
  // Host memory that the device's copies reach. The host may read and write it.
  virtual base::Result<std::unique_ptr<DeviceMemory>> allocate_host(int64_t bytes) = 0;

  // Between the host's own memory and device or host memory of this device. They return when the
  // bytes are there, and are for times when no stream uses those bytes. Unavailable (69): the
  // device failed, now or before, and the bytes are not there.
  virtual base::Status upload(std::byte* to, std::span<const std::byte> from) = 0;
  virtual base::Status download(std::span<std::byte> to, const std::byte* from) = 0;

  virtual std::unique_ptr<Stream> make_stream() = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
  virtual std::unique_ptr<Timestamp> make_timestamp() = 0;
  // Records what `issue` issues to these streams in place of doing it: kernels, copies, fills,
  // signals, and waits for signals that it has issued itself. Where the host's cores are the
  // streams there is nothing to gain: null. A failure of `issue`; Unavailable (69).
  virtual base::Result<std::unique_ptr<Graph>> record(
      [[maybe_unused]] std::span<Stream* const> streams,
      [[maybe_unused]] const std::function<base::Status()>& issue) {
    return std::unique_ptr<Graph>();
  }

  // What a profile says about it; nothing about devices that are the host's cores.
  virtual std::optional<base::GpuIdentity> gpu() const { return std::nullopt; }

  std::string_view name() const { return base::name(kind()); }
};

// The cores of this host and their memory. One for the process; it lives until the end.
Device& cpu_device();
// The process's device of a kind; it lives until the end. `local_rank`: the place of this process
// among those of its host, which share the host's GPUs. OutOfMemory (80), Unavailable (69).
base::Result<Device*> open_device(base::DeviceKind kind, int local_rank = 0);

}  // namespace dc::runtime::device
