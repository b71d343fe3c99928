// SHA-256 of byte ranges, as lower-case hex or as bytes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace dc::base {

// Incremental hash. hex() or bytes() ends it; call nothing but the destructor afterwards.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void update(std::span<const uint8_t> bytes);
  void update(std::string_view text);
  std::string hex();
  std::array<uint8_t, 32> bytes();

 private:
  void* context_;
};

std::string sha256_hex(std::span<const uint8_t> bytes);
std::string sha256_hex(std::string_view text);

}  // namespace dc::base
