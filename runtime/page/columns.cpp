#include "runtime/page/columns.h"

#include <algorithm>

namespace dc::runtime::page {

void Column::add(uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>((value & 0x7f) | 0x80));
  bytes_.push_back(static_cast<char>(value));
}

std::string Column::base64() const {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes_.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes_.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes_.size() - i);
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) {
      group = group << 8 | (j < count ? static_cast<uint8_t>(bytes_[i + j]) : 0u);
    }
    for (size_t j = 0; j < 4; ++j) {
      text.push_back(j <= count ? kDigits[group >> (18 - 6 * j) & 63] : '=');
    }
  }
  return text;
}

uint64_t StringTable::number(std::string_view text) {
  const auto [at, is_new] = numbers_.try_emplace(std::string(text), strings_.size());
  if (is_new) strings_.emplace_back(text);
  return at->second;
}

}  // namespace dc::runtime::page
