// Checksum: what a manifest says of some bytes of a file. dcrun writes XXH64, which costs a saving
// rank little; SHA-256 is what programs can write that have no XXH64 (scripts/torch_checkpoint.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dc::runtime::checkpoint {

class Checksum {
 public:
  enum class Algorithm : uint8_t { Xxh64, Sha256 };

  Checksum() = default;  // of no bytes
  explicit Checksum(uint64_t xxh64);
  // Lower-case hex digits; empty if they are not as many as the algorithm has.
  static std::optional<Checksum> parse(Algorithm algorithm, std::string hex);

  bool matches(std::span<const std::byte> bytes) const;
  Algorithm algorithm() const { return algorithm_; }
  const std::string& hex() const { return hex_; }
  bool operator==(const Checksum&) const = default;

 private:
  Checksum(Algorithm algorithm, std::string hex) : algorithm_(algorithm), hex_(std::move(hex)) {}
  Algorithm algorithm_ = Algorithm::Xxh64;
  std::string hex_ = "ef46db3751d8e999";
};

// "xxh64", "sha256": the member of a manifest that holds it.
std::string_view name(Checksum::Algorithm algorithm);

}  // namespace dc::runtime::checkpoint
