#include "src/base/json_writer.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "src/base/utf8.h"

namespace dc::base {

namespace {

// U+FFFD, for bytes that are no UTF-8, as in a path: JSON cannot hold them.
constexpr std::string_view kReplacement = "\xef\xbf\xbd";

void append_json_byte(std::string& text, unsigned char byte) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  if (byte == '"' || byte == '\\') {
    text += '\\';
    text += static_cast<char>(byte);
  } else if (byte == '\n') {
    text += "\\n";
  } else if (byte == '\t') {
    text += "\\t";
  } else if (byte < 32) {
    text += "\\u00";
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  } else {
    text += static_cast<char>(byte);
  }
}

}  // namespace

void append_json_string(std::string& text, std::string_view value) {
  text += '"';
  for (size_t i = 0; i < value.size();) {
    const auto byte = static_cast<unsigned char>(value[i]);
    if (byte < 0x80) {
      append_json_byte(text, byte);
      ++i;
      continue;
    }
    const size_t length = utf8_length(value.substr(i));
    text += length > 0 ? value.substr(i, length) : kReplacement;
    i += std::max<size_t>(length, 1);
  }
  text += '"';
}

void append_json_real(std::string& text, double value) {
  if (std::isnan(value)) {
    text += "\"NaN\"";
    return;
  }
  if (std::isinf(value)) {
    text += value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
    return;
  }
  char buffer[40];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  const std::string_view digits(buffer, static_cast<size_t>(result.ptr - buffer));
  text += digits;
  if (digits.find_first_of(".e") == std::string_view::npos) text += ".0";
}

void JsonWriter::clear() {
  text_.clear();
  has_items_.clear();
  after_key_ = false;
}

void JsonWriter::new_line() {
  if (indent_ == 0) return;
  text_ += '\n';
  text_.append(has_items_.size() * static_cast<size_t>(indent_), ' ');
}

void JsonWriter::before_value() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (has_items_.empty()) return;
  if (has_items_.back()) text_ += ',';
  has_items_.back() = true;
  new_line();
}

void JsonWriter::open(char bracket) {
  before_value();
  text_ += bracket;
  has_items_.push_back(false);
}

void JsonWriter::close(char bracket) {
  const bool had_items = has_items_.back();
  has_items_.pop_back();
  if (had_items) new_line();
  text_ += bracket;
}

JsonWriter& JsonWriter::begin_object() {
  open('{');
  return *this;
}
JsonWriter& JsonWriter::end_object() {
  close('}');
  return *this;
}
JsonWriter& JsonWriter::begin_array() {
  open('[');
  return *this;
}
JsonWriter& JsonWriter::end_array() {
  close(']');
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  before_value();
  append_json_string(text_, name);
  text_ += indent_ == 0 ? ":" : ": ";
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::null() {
  before_value();
  text_ += "null";
  return *this;
}

JsonWriter& JsonWriter::boolean(bool value) {
  before_value();
  text_ += value ? "true" : "false";
  return *this;
}

JsonWriter& JsonWriter::integer(int64_t value) {
  before_value();
  char buffer[24];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  text_.append(buffer, static_cast<size_t>(result.ptr - buffer));
  return *this;
}

JsonWriter& JsonWriter::real(double value) {
  before_value();
  append_json_real(text_, value);
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view value) {
  before_value();
  append_json_string(text_, value);
  return *this;
}

}  // namespace dc::base
