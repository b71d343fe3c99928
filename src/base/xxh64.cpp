#include "src/base/xxh64.h"

#include <bit>
#include <cstring>

namespace dc::base {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint64_t kPrimes[] = {0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9,
                                0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5};

template <typename Word>
uint64_t load(const std::byte* at) {
  Word word;
  std::memcpy(&word, at, sizeof(Word));
  return word;
}

uint64_t round(uint64_t lane, uint64_t word) {
  return std::rotl(lane + word * kPrimes[1], 31) * kPrimes[0];
}

uint64_t merge(uint64_t hash, uint64_t lane) {
  return (hash ^ round(0, lane)) * kPrimes[0] + kPrimes[3];
}

// The last 0 to 31 bytes, in words of eight, four and one.
uint64_t finish(uint64_t hash, std::span<const std::byte> rest) {
  const std::byte* at = rest.data();
  size_t left = rest.size();
  for (; left >= 8; at += 8, left -= 8)
    hash = std::rotl(hash ^ round(0, load<uint64_t>(at)), 27) * kPrimes[0] + kPrimes[3];
  if (left >= 4) {
    hash = std::rotl(hash ^ load<uint32_t>(at) * kPrimes[0], 23) * kPrimes[1] + kPrimes[2];
    at += 4, left -= 4;
  }
  for (; left > 0; ++at, --left)
    hash = std::rotl(hash ^ load<uint8_t>(at) * kPrimes[4], 11) * kPrimes[0];
  hash = (hash ^ hash >> 33) * kPrimes[1];
  hash = (hash ^ hash >> 29) * kPrimes[2];
  return hash ^ hash >> 32;
}

}  // namespace

uint64_t xxh64(std::span<const std::byte> bytes) {
  constexpr size_t kStripe = 32;
  const size_t stripes = bytes.size() / kStripe;
  uint64_t hash = kPrimes[4];
  if (stripes > 0) {
    uint64_t lanes[] = {kPrimes[0] + kPrimes[1], kPrimes[1], 0, 0 - kPrimes[0]};
    for (size_t s = 0; s < stripes; ++s) {
      for (size_t i = 0; i < 4; ++i)
        lanes[i] = round(lanes[i], load<uint64_t>(bytes.data() + s * kStripe + i * 8));
    }
    hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) +
           std::rotl(lanes[3], 18);
    for (uint64_t lane : lanes) hash = merge(hash, lane);
  }
  return finish(hash + bytes.size(), bytes.subspan(stripes * kStripe));
}

}  // namespace dc::base
