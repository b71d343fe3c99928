#include "runtime/checkpoint/checksum.h"

#include <algorithm>

#include "src/base/sha256.h"
#include "src/base/xxh64.h"

namespace dc::runtime::checkpoint {
namespace {

std::string hex_of(uint64_t value) {
  std::string text(16, '0');
  for (size_t i = 16; i-- > 0; value >>= 4) text[i] = "0123456789abcdef"[value & 15];
  return text;
}

bool is_digit(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

}  // namespace

Checksum::Checksum(uint64_t xxh64) : hex_(hex_of(xxh64)) {}

std::optional<Checksum> Checksum::parse(Algorithm algorithm, std::string hex) {
  const size_t digits = algorithm == Algorithm::Xxh64 ? 16 : 64;
  if (hex.size() != digits || !std::all_of(hex.begin(), hex.end(), is_digit)) return std::nullopt;
  return Checksum(algorithm, std::move(hex));
}

bool Checksum::matches(std::span<const std::byte> bytes) const {
  switch (algorithm_) {
    case Algorithm::Xxh64:
      return hex_of(base::xxh64(bytes)) == hex_;
    case Algorithm::Sha256:
      return base::sha256_hex(std::span<const uint8_t>(
                 reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size())) == hex_;
  }
  return false;
}

std::string_view name(Checksum::Algorithm algorithm) {
  switch (algorithm) {
    case Checksum::Algorithm::Xxh64:
      return "xxh64";
    case Checksum::Algorithm::Sha256:
      return "sha256";
  }
  return "";
}

}  // namespace dc::runtime::checkpoint
