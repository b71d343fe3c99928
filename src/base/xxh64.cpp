#include "src/base/xxh64.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace dc::base {
namespace {

static_assert(std::endian::native == std::endian::little);

// The lanes start as prime 0 + prime 1, prime 1, 0 and - prime 0.
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

void add_stripe(uint64_t (&lanes)[4], const std::byte* at) {
  for (size_t i = 0; i < 4; ++i) lanes[i] = round(lanes[i], load<uint64_t>(at + i * 8));
}

}  // namespace

void Xxh64::update(std::span<const std::byte> bytes) {
  total_ += bytes.size();
  if (rest_bytes_ > 0) {
    const size_t taken = std::min(bytes.size(), kStripe - rest_bytes_);
    std::copy_n(bytes.data(), taken, rest_ + rest_bytes_);
    rest_bytes_ += taken;
    bytes = bytes.subspan(taken);
    if (rest_bytes_ < kStripe) return;
    add_stripe(lanes_, rest_);
    rest_bytes_ = 0;
  }
  for (; bytes.size() >= kStripe; bytes = bytes.subspan(kStripe)) add_stripe(lanes_, bytes.data());
  std::copy_n(bytes.data(), bytes.size(), rest_);
  rest_bytes_ = bytes.size();
}

uint64_t Xxh64::value() const {
  uint64_t hash = kPrimes[4];
  if (total_ >= kStripe) {
    hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
           std::rotl(lanes_[3], 18);
    for (const uint64_t lane : lanes_) hash = merge(hash, lane);
  }
  return finish(hash + total_, {rest_, rest_bytes_});
}

uint64_t xxh64(std::span<const std::byte> bytes) {
  Xxh64 hash;
  hash.update(bytes);
  return hash.value();
}

}  // namespace dc::base
