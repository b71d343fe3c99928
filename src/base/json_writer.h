// Writes JSON text: compact or indented, the same bytes in every locale.
//
// Doubles are the shortest text that reads back equal; infinities and NaN become the strings
// "Infinity", "-Infinity", "NaN", because JSON has no other form for them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dc::base {

class JsonWriter {
 public:
  explicit JsonWriter(int indent = 0) : indent_(indent) {}  // 0: one line

  JsonWriter& begin_object();
  JsonWriter& end_object();
  JsonWriter& begin_array();
  JsonWriter& end_array();
  JsonWriter& key(std::string_view name);
  JsonWriter& null();
  JsonWriter& boolean(bool value);
  JsonWriter& integer(int64_t value);
  JsonWriter& real(double value);
  JsonWriter& string(std::string_view value);

  // key and value in one call
  JsonWriter& field(std::string_view name, std::string_view value) {
    return key(name).string(value);
  }
  JsonWriter& field(std::string_view name, const char* value) { return key(name).string(value); }
  JsonWriter& field(std::string_view name, int64_t value) { return key(name).integer(value); }
  JsonWriter& field(std::string_view name, int value) { return key(name).integer(value); }
  JsonWriter& field(std::string_view name, double value) { return key(name).real(value); }
  JsonWriter& field(std::string_view name, bool value) { return key(name).boolean(value); }

  const std::string& text() const { return text_; }
  std::string take() { return std::move(text_); }
  void
  clear();  // starts over and keeps its memory: the next text of the same size allocates nothing

 private:
  void before_value();
  void new_line();
  void open(char bracket);
  void close(char bracket);
  std::string text_;
  std::vector<bool> has_items_;  // per open bracket
  bool after_key_ = false;
  int indent_;
};

void append_json_string(std::string& text, std::string_view value);  // quoted and escaped
void append_json_real(std::string& text, double value);              // "1.0", "1e-08", "\"NaN\""

}  // namespace dc::base
