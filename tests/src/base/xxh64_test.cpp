#include "src/base/xxh64.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace dc::base {
namespace {

uint64_t of(const std::string& text) {
  return xxh64({reinterpret_cast<const std::byte*>(text.data()), text.size()});
}

// What the xxhash module for Python says of the bytes 3, 10, 17, ... modulo 256.
TEST(Xxh64, KnownValues) {
  const std::vector<std::pair<int, uint64_t>> known = {
      {0, 0xef46db3751d8e999},   {1, 0x1f25c8d0bc1f4bb6},   {3, 0x31d2363f52e564c9},
      {4, 0x9bb64b7d66ee9fda},   {8, 0xdab99d95c6f90092},   {12, 0xd52e407833af5133},
      {31, 0xa2aa5f33cc4a6119},  {32, 0x23c3c17ef790fd97},  {63, 0x5e3e54b431c7493c},
      {100, 0xa61f8d4c170fe531}, {1000, 0x5f235fa033f1a3fb}};
  for (const auto& [size, hash] : known) {
    std::string text;
    for (int i = 0; i < size; ++i) text += static_cast<char>((7 * i + 3) % 256);
    EXPECT_EQ(of(text), hash) << size << " bytes";
  }
}

TEST(Xxh64, PartsGiveTheHashOfTheWhole) {
  for (size_t size = 0; size < 200; ++size) {
    std::string text;
    for (size_t i = 0; i < size; ++i) text += static_cast<char>(7 * i + 3);
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    for (const size_t part : {1, 5, 31, 32, 33, 64, 100}) {
      Xxh64 hash;
      for (size_t at = 0; at < size; at += part)
        hash.update({bytes + at, std::min(part, size - at)});
      hash.update({});
      EXPECT_EQ(hash.value(), of(text)) << size << " bytes in parts of " << part;
      EXPECT_EQ(hash.value(), of(text));  // asking changes nothing
    }
  }
}

TEST(Xxh64, EveryBitCounts) {
  for (size_t size : {1, 7, 8, 12, 31, 32, 33, 64, 100}) {
    std::string text(size, 'x');
    const uint64_t before = of(text);
    for (size_t bit = 0; bit < size * 8; ++bit) {
      text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
      EXPECT_NE(of(text), before) << size << " bytes, bit " << bit;
      text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
    }
  }
}

}  // namespace
}  // namespace dc::base
