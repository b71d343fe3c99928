// Device: where kernels run. Makes the streams and events that the executor needs.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/device/event.h"
#include "runtime/device/stream.h"

namespace dc::runtime {

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;
  virtual std::unique_ptr<Stream> make_stream(const std::string& name) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
};

// Streams are threads that sleep when idle.
std::unique_ptr<Device> make_cpu_device();

}  // namespace dc::runtime
