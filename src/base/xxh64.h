// XXH64 (Collet, xxHash specification 0.1.1), a fast checksum: several bytes per cycle, no
// security.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dc::base {

uint64_t xxh64(std::span<const std::byte> bytes);  // seed 0

}  // namespace dc::base
