#include "src/base/hmac.h"

#include <algorithm>

#include "src/base/sha256.h"

namespace dc::base {
namespace {

constexpr size_t kBlock = 64;  // bytes that SHA-256 takes at a time

std::string_view text_of(const Mac& mac) {
  return {reinterpret_cast<const char*>(mac.data()), mac.size()};
}

Mac hash_after(const std::array<char, kBlock>& key, char pad, std::string_view text) {
  std::array<char, kBlock> block;
  std::transform(key.begin(), key.end(), block.begin(),
                 [pad](char c) { return static_cast<char>(c ^ pad); });
  Sha256 hash;
  hash.update(std::string_view(block.data(), block.size()));
  hash.update(text);
  return hash.bytes();
}

}  // namespace

Mac hmac_sha256(std::string_view key, std::string_view text) {
  Mac short_key;
  if (key.size() > kBlock) {
    Sha256 hash;
    hash.update(key);
    short_key = hash.bytes();
    key = text_of(short_key);
  }
  std::array<char, kBlock> padded{};
  std::copy(key.begin(), key.end(), padded.begin());
  const Mac inner = hash_after(padded, 0x36, text);
  return hash_after(padded, 0x5c, text_of(inner));
}

bool equal_in_constant_time(const Mac& a, const Mac& b) {
  uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<uint8_t>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace dc::base
