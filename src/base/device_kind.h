// DeviceKind: the kinds of devices that plans are made for and run on.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "src/base/enum_names.h"

namespace dc::base {

// Checked: a check for developers, the CPU with memory that the host cannot read (runtime/device).
// The numbers are those of schemas/types.fbs.
enum class DeviceKind : uint8_t { Cpu, Checked, Cuda };

inline constexpr auto kDeviceKinds = enum_names<DeviceKind>({"cpu", "checked", "cuda"});

inline constexpr std::string_view name(DeviceKind kind) { return enum_name(kDeviceKinds, kind); }

// Nothing if no kind has that name.
inline constexpr std::optional<DeviceKind> device_kind(std::string_view name) {
  return enum_value<DeviceKind>(kDeviceKinds, name);
}

// Whether `device` runs the machine code of a plan for `planned`.
inline constexpr bool runs_plans_for(DeviceKind device, DeviceKind planned) {
  switch (device) {
    case DeviceKind::Cpu:
      return planned == DeviceKind::Cpu;
    case DeviceKind::Checked:
      return planned == DeviceKind::Cpu || planned == DeviceKind::Checked;
    case DeviceKind::Cuda:
      return planned == DeviceKind::Cpu || planned == DeviceKind::Cuda;
  }
  return false;
}

}  // namespace dc::base
