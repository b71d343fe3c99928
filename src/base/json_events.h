// Streaming JSON: a parser that calls back instead of building a tree. For large documents.
//
// Input must be UTF-8. Integers are exact: one that does not fit int64 is an error, never rounded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/status.h"

namespace dc::base {

// Receives the parts of a document in order. A callback that returns false ends the parse; it puts
// the reason into `problem` first. Views are valid during the call only.
struct JsonEvents {
  virtual ~JsonEvents() = default;
  virtual bool null() = 0;
  virtual bool boolean(bool value) = 0;
  virtual bool integer(int64_t value) = 0;
  virtual bool real(double value) = 0;
  virtual bool string(std::string_view value) = 0;
  virtual bool key(std::string_view value) = 0;
  virtual bool begin_object() = 0;
  virtual bool end_object() = 0;
  virtual bool begin_array() = 0;
  virtual bool end_array() = 0;

  std::string problem;
  size_t position = 0;  // bytes read when the current callback was made; set by the parser
};

// Passes what it receives on to two others. The first that ends the parse does so for both.
class JsonTee : public JsonEvents {
 public:
  JsonTee(JsonEvents& first, JsonEvents& second) : to_{&first, &second} {}
  bool null() override {
    return both([](JsonEvents& to) { return to.null(); });
  }
  bool boolean(bool value) override {
    return both([&](JsonEvents& to) { return to.boolean(value); });
  }
  bool integer(int64_t value) override {
    return both([&](JsonEvents& to) { return to.integer(value); });
  }
  bool real(double value) override {
    return both([&](JsonEvents& to) { return to.real(value); });
  }
  bool string(std::string_view value) override {
    return both([&](JsonEvents& to) { return to.string(value); });
  }
  bool key(std::string_view value) override {
    return both([&](JsonEvents& to) { return to.key(value); });
  }
  bool begin_object() override {
    return both([](JsonEvents& to) { return to.begin_object(); });
  }
  bool end_object() override {
    return both([](JsonEvents& to) { return to.end_object(); });
  }
  bool begin_array() override {
    return both([](JsonEvents& to) { return to.begin_array(); });
  }
  bool end_array() override {
    return both([](JsonEvents& to) { return to.end_array(); });
  }

 private:
  template <typename Call>
  bool both(Call call) {
    for (JsonEvents* to : to_) {
      to->position = position;
      if (call(*to)) continue;
      problem = to->problem;
      return false;
    }
    return true;
  }

  std::array<JsonEvents*, 2> to_;
};

struct JsonLimits {
  size_t max_bytes = size_t{1} << 30;
  int max_depth = 100;
};

// `what` names the document in errors ("train.json"). Errors are BadInput and name the line.
Status parse_json(std::string_view text, std::string_view what, JsonEvents& events,
                  const JsonLimits& limits = {});

// 1-based line of a byte position.
int line_at(std::string_view text, size_t position);

}  // namespace dc::base
