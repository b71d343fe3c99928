#include "src/base/json_events.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

namespace dc::base {
namespace {

using Library = nlohmann::json;

// Walks the text and leaves behind how far the lexer has read.
class Reader {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Reader(const char* at, const char** furthest) : at_(at), furthest_(furthest) {}
  const char& operator*() const { return *at_; }
  Reader& operator++() {
    *furthest_ = ++at_;
    return *this;
  }
  bool operator==(const Reader& other) const { return at_ == other.at_; }
  bool operator!=(const Reader& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** furthest_;
};

// Adapts the library's events to ours; enforces depth and integer range.
class Adapter {
 public:
  Adapter(JsonEvents& events, int max_depth, const char* begin, const char** furthest)
      : events_(events), max_depth_(max_depth), begin_(begin), furthest_(furthest) {}

  bool null() { return at().null(); }
  bool boolean(bool value) { return at().boolean(value); }
  bool number_integer(int64_t value) { return at().integer(value); }
  bool number_unsigned(uint64_t value) {
    if (value > static_cast<uint64_t>(INT64_MAX)) return too_large(std::to_string(value));
    return at().integer(static_cast<int64_t>(value));
  }
  bool number_float(double value, const std::string& text) {
    if (text.find_first_of(".eE") == std::string::npos) return too_large(text);
    return at().real(value);
  }
  bool string(std::string& value) { return at().string(value); }
  bool binary(Library::binary_t&) { return false; }
  bool key(std::string& value) { return at().key(value); }
  bool start_object(std::size_t) { return enter() && at().begin_object(); }
  bool end_object() { return leave().end_object(); }
  bool start_array(std::size_t) { return enter() && at().begin_array(); }
  bool end_array() { return leave().end_array(); }
  bool parse_error(std::size_t, const std::string& token, const Library::exception& error) {
    at();
    events_.problem = sentence(token, error);
    return false;
  }

 private:
  JsonEvents& at() {
    events_.position = static_cast<size_t>(*furthest_ - begin_);
    return events_;
  }
  bool enter() {
    if (++depth_ <= max_depth_) return true;
    at().problem =
        "objects and arrays are nested more than " + std::to_string(max_depth_) + " deep";
    return false;
  }
  JsonEvents& leave() {
    --depth_;
    return at();
  }
  bool too_large(const std::string& text) {
    at().problem = "the integer " + text.substr(0, 40) + " does not fit 64 bits";
    return false;
  }
  // The library's message reads "[json...] parse error at ...: <cause>; last read: ..."; ours is
  // the cause.
  static std::string sentence(const std::string& token, const Library::exception& error) {
    if (error.id == 406) return "the number " + token.substr(0, 40) + " is out of range";
    std::string text = error.what();
    const size_t cause = text.find(" - ");
    if (cause != std::string::npos) text = text.substr(cause + 3);
    std::replace_if(
        text.begin(), text.end(), [](unsigned char c) { return c < 32 || c > 126; }, '?');
    return text.substr(0, 200);
  }

  JsonEvents& events_;
  int max_depth_;
  int depth_ = 0;
  const char* begin_;
  const char** furthest_;
};

}  // namespace

Status parse_json(std::string_view text, std::string_view what, JsonEvents& events,
                  const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return Status(ErrorKind::BadInput, "DC1101",
                  std::string(what) + " has " + std::to_string(text.size()) + " bytes; at most " +
                      std::to_string(limits.max_bytes) + " are accepted");
  }
  const char* begin = text.data();
  const char* furthest = begin;
  Adapter adapter(events, limits.max_depth, begin, &furthest);
  bool complete = false;
  try {
    complete = Library::sax_parse(Reader(begin, &furthest), Reader(begin + text.size(), &furthest),
                                  &adapter);
  } catch (const std::exception& error) {
    events.problem = error.what();
  }
  if (complete) return ok_status();
  std::string problem = events.problem.empty() ? "it is not valid JSON" : events.problem;
  return Status(ErrorKind::BadInput, "DC1102",
                std::string(what) + " line " + std::to_string(line_at(text, events.position)) +
                    ": " + problem);
}

int line_at(std::string_view text, size_t position) {
  // A number is only known to end at the character after it, so that one does not count.
  const size_t end = std::min(position == 0 ? 0 : position - 1, text.size());
  return 1 +
         static_cast<int>(std::count(text.begin(), text.begin() + static_cast<long>(end), '\n'));
}

}  // namespace dc::base
