// HMAC-SHA-256 (RFC 2104): shows that the sender of a text knows a key, without the key.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace dc::base {

using Mac = std::array<uint8_t, 32>;

Mac hmac_sha256(std::string_view key, std::string_view text);

// Takes as long for codes that differ in the first byte as for those that differ in the last.
bool equal_in_constant_time(const Mac& a, const Mac& b);

}  // namespace dc::base
