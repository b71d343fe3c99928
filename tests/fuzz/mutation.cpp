#include "tests/fuzz/mutation.h"

#include <cctype>
#include <string_view>

namespace dc::fuzz {
namespace {

size_t pick(std::mt19937& random, size_t below) { return static_cast<size_t>(random() % below); }

void set_word(std::vector<uint8_t>& bytes, size_t at, uint32_t word) {
  for (size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<uint8_t>(word >> (8 * i));
}

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-';
}

struct Range {
  size_t begin = 0, end = 0;
};

// The word at or after a random place; empty at the end of the text.
Range random_word(const std::string& text, std::mt19937& random) {
  size_t begin = pick(random, text.size());
  while (begin < text.size() && !is_word(text[begin])) ++begin;
  while (begin > 0 && begin < text.size() && is_word(text[begin - 1])) --begin;
  size_t end = begin;
  while (end < text.size() && is_word(text[end])) ++end;
  return {begin, end};
}

// The line around a random place, its newline included.
Range random_line(const std::string& text, std::mt19937& random) {
  const size_t at = pick(random, text.size());
  const size_t before = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
  const size_t after = text.find('\n', at);
  return {before == std::string::npos ? 0 : before + 1,
          after == std::string::npos ? text.size() : after + 1};
}

void replace(std::string& text, Range range, std::string_view by) {
  text.replace(range.begin, range.end - range.begin, by);
}

void replace_word(std::string& text, std::mt19937& random) {
  static constexpr std::string_view kWords[] = {
      "0",     "1",          "-1",         "2",
      "3",     "64",         "2147483648", "9223372036854775807",
      "1e308", "1000000",    "0.5",        "nan",
      "f32",   "bf16",       "i64",        "-9223372036854775808",
      "true",  "null",       "false",      "x",
      "w",     "4294967296", "65536",      "99999999999999999999"};
  const Range target = random_word(text, random);
  if (target.begin == target.end) return;
  if (random() % 2 == 0) {
    replace(text, target, kWords[pick(random, std::size(kWords))]);
    return;
  }
  const Range source = random_word(text, random);
  replace(text, target, text.substr(source.begin, source.end - source.begin));
}

void move_lines(std::string& text, std::mt19937& random) {
  const Range line = random_line(text, random);
  const std::string copy = text.substr(line.begin, line.end - line.begin);
  const uint32_t how = random() % 3;
  if (how != 0) replace(text, line, "");
  if (how != 1 && !text.empty()) text.insert(random_line(text, random).begin, copy);
}

}  // namespace

void mutate_bytes(std::vector<uint8_t>& bytes, std::mt19937& random) {
  const size_t edits = 1 + pick(random, 8);
  for (size_t e = 0; e < edits && bytes.size() > 16; ++e) {
    switch (random() % 5) {
      case 0:
        bytes[pick(random, bytes.size())] = static_cast<uint8_t>(random());
        break;
      case 1: {
        const size_t at = pick(random, bytes.size() - 8) / 4 * 4;
        const uint32_t words[] = {0,           1,           0xffffffffu,
                                  0x7fffffffu, 0x80000000u, static_cast<uint32_t>(random() % 64)};
        set_word(bytes, at, words[pick(random, std::size(words))]);
        break;
      }
      case 2: {
        const size_t from = pick(random, bytes.size() - 8) / 4 * 4;
        const size_t to = pick(random, bytes.size() - 8) / 4 * 4;
        for (size_t i = 0; i < 4; ++i) bytes[to + i] = bytes[from + i];
        break;
      }
      case 3:
        bytes[pick(random, bytes.size())] ^= static_cast<uint8_t>(1u << (random() % 8));
        break;
      default:
        if (random() % 8 == 0) bytes.resize(pick(random, bytes.size()));
        break;
    }
  }
}

void mutate_text(std::string& text, std::mt19937& random) {
  const size_t edits = 1 + pick(random, 4);
  for (size_t e = 0; e < edits && text.size() > 16; ++e) {
    switch (random() % 12) {
      case 0:
        text[pick(random, text.size())] = static_cast<char>(random());
        break;
      case 1:
        if (random() % 8 == 0) text.resize(pick(random, text.size()));
        break;
      case 2:
      case 3:
        move_lines(text, random);
        break;
      default:
        replace_word(text, random);
        break;
    }
  }
}

}  // namespace dc::fuzz
