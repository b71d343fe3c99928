#include "src/base/json_events.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <vector>

#include "src/base/text.h"

namespace dc::base {
namespace {

// What a string holds as it is: ASCII without control characters, quotes and backslashes.
constexpr std::array<bool, 256> kPlain = [] {
  std::array<bool, 256> plain{};
  for (size_t c = 0x20; c < 0x80; ++c) plain[c] = c != '"' && c != '\\';
  return plain;
}();

void append_utf8(std::string& text, uint32_t point) {
  const auto add = [&text](uint32_t byte) { text += static_cast<char>(byte); };
  const auto add_rest = [&](int bits) { add(0x80 | (point >> bits & 0x3f)); };
  if (point < 0x80) return add(point);
  if (point < 0x800) {
    add(0xc0 | point >> 6);
  } else if (point < 0x10000) {
    add(0xe0 | point >> 12);
    add_rest(6);
  } else {
    add(0xf0 | point >> 18);
    add_rest(12);
    add_rest(6);
  }
  add_rest(0);
}

// Reads a text as RFC 8259 has it. Every function that returns false has said what the problem is.
class JsonReader {
 public:
  JsonReader(std::string_view text, JsonEvents& events, int max_depth)
      : begin_(text.data()),
        at_(begin_),
        end_(begin_ + text.size()),
        events_(events),
        max_depth_(static_cast<size_t>(max_depth)) {}

  bool run() {
    if (rest().starts_with("\xEF\xBB\xBF")) at_ += 3;
    if (!value()) return false;
    while (!closers_.empty()) {
      if (!next_part()) return false;
    }
    skip_space();
    return at_ == end_ || expected("the end of the text");
  }

 private:
  std::string_view rest() const { return {at_, static_cast<size_t>(end_ - at_)}; }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  bool is_at(char c) const { return at_ != end_ && *at_ == c; }
  void skip_space() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }
  void skip_digits() {
    while (at_ != end_ && is_digit(*at_)) ++at_;
  }
  JsonEvents& events() {
    events_.position = static_cast<size_t>(at_ - begin_);
    return events_;
  }
  // A number is only known to end at the character behind it.
  JsonEvents& events_of_number() {
    events_.position = static_cast<size_t>(at_ - begin_) + (at_ == end_ ? 0 : 1);
    return events_;
  }

  bool refuse(std::string problem) {
    events_of_number().problem = std::move(problem);
    return false;
  }
  bool expected(std::string_view what) {
    std::string found = "the end of the text";
    if (at_ != end_) {
      const auto byte = static_cast<unsigned char>(*at_);
      constexpr std::string_view kHex = "0123456789abcdef";
      found = byte >= 0x20 && byte < 0x7f
                  ? "'" + std::string(1, *at_) + "'"
                  : std::string("the byte 0x") + kHex[byte / 16] + kHex[byte % 16];
    }
    return refuse("expected " + std::string(what) + ", found " + found);
  }

  // What comes next in the innermost open object or array: its end, or one more member or element.
  bool next_part() {
    skip_space();
    const char closer = closers_.back();
    if (is_at(closer)) return close(closer);
    if (!is_first_) {
      if (!is_at(',')) return expected(closer == '}' ? "',' or '}'" : "',' or ']'");
      ++at_;
      skip_space();
    }
    is_first_ = false;
    return closer == ']' ? value() : member();
  }

  bool member() {
    if (!is_at('"')) return expected("a key in quotes");
    std::string_view key;
    if (!string(key) || !events().key(key)) return false;
    skip_space();
    if (!is_at(':')) return expected("':'");
    ++at_;
    return value();
  }

  bool value() {
    skip_space();
    const char first = at_ == end_ ? '\0' : *at_;
    if (first == '{' || first == '[') return open(first);
    if (first == '"') {
      std::string_view text;
      return string(text) && events().string(text);
    }
    if (first == '-' || is_digit(first)) return number();
    if (skip("true")) return events().boolean(true);
    if (skip("false")) return events().boolean(false);
    if (skip("null")) return events().null();
    return expected("a value");
  }

  bool skip(std::string_view word) {
    if (!rest().starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  bool open(char opener) {
    ++at_;
    if (closers_.size() == max_depth_) {
      return refuse("objects and arrays are nested more than " + std::to_string(max_depth_) +
                    " deep");
    }
    is_first_ = true;
    const bool is_object = opener == '{';
    closers_.push_back(is_object ? '}' : ']');
    return is_object ? events().begin_object() : events().begin_array();
  }

  bool close(char closer) {
    ++at_;
    is_first_ = false;
    closers_.pop_back();
    return closer == '}' ? events().end_object() : events().end_array();
  }

  // `found` is a part of the text, or of what the text means where it has escapes.
  bool string(std::string_view& found) {
    const char* from = ++at_;
    skip_plain();
    if (is_at('"')) {
      found = {from, static_cast<size_t>(at_++ - from)};
      return true;
    }
    meant_.assign(from, at_);
    while (!is_at('"')) {
      if (!special()) return false;
      from = at_;
      skip_plain();
      meant_.append(from, at_);
    }
    ++at_;
    found = meant_;
    return true;
  }

  void skip_plain() {
    while (at_ != end_ && kPlain[static_cast<unsigned char>(*at_)]) ++at_;
  }

  // An escape or a character beyond ASCII.
  bool special() {
    if (at_ == end_) return expected("the quote that ends a string");
    if (*at_ == '\\') return escape();
    if (static_cast<unsigned char>(*at_) < 0x20)
      return expected("a control character in a string to be escaped");
    const size_t length = utf8_length(rest());
    if (length == 0) return refuse("a string is no UTF-8");
    meant_.append(at_, length);
    at_ += length;
    return true;
  }

  bool escape() {
    constexpr std::string_view kLetters = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
    ++at_;
    if (is_at('u')) return code_point();
    const size_t letter = at_ == end_ ? std::string_view::npos : kLetters.find(*at_);
    if (letter == std::string_view::npos) return expected("one of \"\\/bfnrtu behind a backslash");
    ++at_;
    meant_ += kMeant[letter];
    return true;
  }

  // uXXXX, or two of them for what is beyond 16 bits.
  bool code_point() {
    const std::optional<uint32_t> first = code_unit();
    if (!first) return expected("four hexadecimal digits behind \\u");
    uint32_t point = *first;
    if (point >= 0xd800 && point < 0xe000) {
      const std::optional<uint32_t> second =
          point < 0xdc00 && skip("\\") && is_at('u') ? code_unit() : std::nullopt;
      if (!second || *second < 0xdc00 || *second >= 0xe000)
        return refuse("a string has half of a surrogate pair");
      point = 0x10000 + ((point - 0xd800) << 10) + (*second - 0xdc00);
    }
    append_utf8(meant_, point);
    return true;
  }

  std::optional<uint32_t> code_unit() {
    const char* from = ++at_;
    at_ += std::min<std::ptrdiff_t>(4, end_ - at_);
    uint32_t unit = 0;
    const auto [behind, error] = std::from_chars(from, at_, unit, 16);
    if (error == std::errc() && behind == from + 4) return unit;
    at_ = from;
    while (at_ != end_ && std::isxdigit(static_cast<unsigned char>(*at_))) ++at_;
    return std::nullopt;
  }

  bool number() {
    const char* from = at_;
    if (is_at('-')) ++at_;
    const char* digits = at_;
    if (!some_digits()) return false;
    if (*digits == '0' && at_ - digits > 1) return refuse("a number begins with a zero");
    bool is_whole = true;
    if (is_at('.')) {
      ++at_;
      is_whole = false;
      if (!some_digits()) return false;
    }
    if (is_at('e') || is_at('E')) {
      ++at_;
      is_whole = false;
      if (is_at('+') || is_at('-')) ++at_;
      if (!some_digits()) return false;
    }
    const std::string_view text(from, static_cast<size_t>(at_ - from));
    return is_whole ? integer(text) : real(text);
  }

  bool some_digits() {
    const char* from = at_;
    skip_digits();
    return at_ != from || expected("a digit");
  }

  bool integer(std::string_view text) {
    int64_t value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc())
      return events_of_number().integer(value);
    return refuse("the integer " + std::string(text.substr(0, 40)) + " does not fit 64 bits");
  }

  bool real(std::string_view text) {
    double value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc()) {
      // Too large, or so small that it is next to zero or zero.
      value = std::strtod(std::string(text).c_str(), nullptr);
      if (!std::isfinite(value))
        return refuse("the number " + std::string(text.substr(0, 40)) + " is out of range");
    }
    return events_of_number().real(value);
  }

  const char* begin_;
  const char* at_;
  const char* end_;
  JsonEvents& events_;
  size_t max_depth_;
  std::vector<char> closers_;  // what ends each open object and array
  bool is_first_ = false;      // nothing stands in the innermost one so far
  std::string meant_;          // a string whose escapes were replaced
};

}  // namespace

Status parse_json(std::string_view text, std::string_view what, JsonEvents& events,
                  const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return Status(ErrorKind::BadInput, "DC1101",
                  std::string(what) + " has " + std::to_string(text.size()) + " bytes; at most " +
                      std::to_string(limits.max_bytes) + " are accepted");
  }
  if (JsonReader(text, events, limits.max_depth).run()) return ok_status();
  return Status(ErrorKind::BadInput, "DC1102",
                std::string(what) + " line " + std::to_string(line_at(text, events.position)) +
                    ": " + events.problem);
}

int line_at(std::string_view text, size_t position) {
  // A number is only known to end at the character after it, so that one does not count.
  const size_t end = std::min(position == 0 ? 0 : position - 1, text.size());
  return 1 +
         static_cast<int>(std::count(text.begin(), text.begin() + static_cast<long>(end), '\n'));
}

}  // namespace dc::base
