// Counter-based random numbers of the host: a draw is a function of key and counter, so it depends
// on no order and no rank.
#pragma once

#include <cstdint>
#include <string_view>

namespace dc::runtime::train {

// A bijection of 64-bit words whose every output bit depends on every input bit (splitmix64's
// finalizer).
constexpr uint64_t mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

constexpr uint64_t draw_bits(uint64_t key, uint64_t counter) {
  return mix64(mix64(counter * 0x9E3779B97F4A7C15ull + key) ^ (key >> 1));
}

// Another key for every (key, word): words name what is drawn.
constexpr uint64_t derive_key(uint64_t key, uint64_t word) {
  return mix64(mix64(key + 0x9E3779B97F4A7C15ull) + word * 0xD1342543DE82EF95ull);
}

constexpr uint64_t hash_text(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325ull;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return mix64(hash);
}

// In [0, 1), on a grid of 2^-53.
constexpr double draw_uniform(uint64_t key, uint64_t counter) {
  return static_cast<double>(draw_bits(key, counter) >> 11) * 0x1p-53;
}

// A permutation of [0, size): a four-round Feistel network on the next even number of bits, walked
// until it lands inside.
constexpr int64_t permute(int64_t index, int64_t size, uint64_t key) {
  int half = 1;
  while (half < 31 && (int64_t{1} << (2 * half)) < size) ++half;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  auto x = static_cast<uint64_t>(index);
  do {
    uint64_t left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      const uint64_t next = left ^ (draw_bits(derive_key(key, round), right) & mask);
      left = right;
      right = next;
    }
    x = left << half | right;
  } while (x >= static_cast<uint64_t>(size));
  return static_cast<int64_t>(x);
}

}  // namespace dc::runtime::train
