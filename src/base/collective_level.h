// CollectiveLevel: which links a collective uses, where ranks are on several hosts.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "src/base/enum_names.h"

namespace dc::base {

enum class CollectiveLevel : uint8_t {
  World,   // all ranks
  Inside,  // the ranks of one host; all hosts at once
  Across,  // one rank of each host, at the same place on it; all places at once
};

inline constexpr auto kCollectiveLevels =
    enum_names<CollectiveLevel>({"world", "inside", "across"});

inline constexpr std::string_view name(CollectiveLevel level) {
  return enum_name(kCollectiveLevels, level);
}

// Nothing if no level has that name.
inline constexpr std::optional<CollectiveLevel> collective_level(std::string_view name) {
  return enum_value<CollectiveLevel>(kCollectiveLevels, name);
}

}  // namespace dc::base
