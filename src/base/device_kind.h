// DeviceKind: the kinds of devices that plans are made for and run on.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "src/base/enum_names.h"

namespace dc::base {

enum class DeviceKind : uint8_t { Cpu };

inline constexpr auto kDeviceKinds = enum_names<DeviceKind>({"cpu"});

inline constexpr std::string_view name(DeviceKind kind) {
  return kDeviceKinds[static_cast<size_t>(kind)];
}

}  // namespace dc::base
