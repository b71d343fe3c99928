// How a value is split into flat shards.
#pragma once

#include <cstdint>

#include "src/base/units.h"

namespace dc::passes {

// Elements; equal in all ZeRO stages, so that all give the same bits.
inline constexpr int64_t kShardAlignment = 32;

// Elements of each of `shards` equal parts of a value of `numel`, padding included.
inline int64_t shard_elements(int64_t numel, int shards) {
  return base::round_up((numel + shards - 1) / shards, kShardAlignment);
}

}  // namespace dc::passes
