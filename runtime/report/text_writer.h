// The words of the text form of a plan, and what it shows of a struct without being asked: a field
// that its line does not name.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "runtime/plan/fields.h"
#include "runtime/plan/names.h"
#include "src/base/json_writer.h"

namespace dc::runtime::report {

class TextWriter {
 public:
  // A word as it is, anything else as a JSON string.
  TextWriter& word(std::string_view w) {
    if (is_plain(w)) {
      out_ += w;
    } else {
      quoted(w);
    }
    return *this;
  }
  TextWriter& raw(std::string_view s) {
    out_ += s;
    return *this;
  }
  TextWriter& number(int64_t v) {
    out_ += std::to_string(v);
    return *this;
  }
  TextWriter& real(double v) {
    base::append_json_real(out_, v);
    return *this;
  }
  TextWriter& id(int64_t tensor) { return tensor < 0 ? raw("-") : raw("%").number(tensor); }
  TextWriter& index(int64_t value) { return value < 0 ? raw("-") : number(value); }
  template <typename Items, typename Print>
  TextWriter& list(const Items& items, Print print) {
    raw("[");
    bool first = true;
    for (const auto& item : items) {
      if (!first) raw(",");
      first = false;
      print(item);
    }
    return raw("]");
  }
  TextWriter& numbers(std::span<const int64_t> values) {
    return list(values, [&](int64_t v) { number(v); });
  }
  TextWriter& ids(std::span<const int32_t> values) {
    return list(values, [&](int32_t v) { id(v); });
  }
  TextWriter& type(base::DType dtype, std::span<const int64_t> sizes) {
    return raw(base::name(dtype)).numbers(sizes);
  }
  TextWriter& line(const char* key, std::string_view value) {
    return raw(key).raw(" ").word(value).raw("\n");
  }
  TextWriter& quoted(std::string_view s) {
    base::append_json_string(out_, s);
    return *this;
  }
  template <typename T>
  TextWriter& show(const T& value) {
    if constexpr (std::is_same_v<T, bool>) return raw(value ? "true" : "false");
    if constexpr (std::is_enum_v<T>) return word(name(value));
    if constexpr (std::is_integral_v<T>) return raw(std::to_string(value));
    if constexpr (std::is_floating_point_v<T>) return real(value);
    if constexpr (std::is_class_v<T>) return raw("{").rest<plan::kFields<T>>(value, {}).raw("}");
  }
  TextWriter& show(const std::string& value) { return word(value); }
  template <typename T>
  TextWriter& show(const std::vector<T>& items) {
    return list(items, [&](const T& item) { show(item); });
  }
  // What the line does not show yet, where it is not the default: " key=value".
  template <const auto& fields, typename Struct>
  TextWriter& rest(const Struct& item, plan::FieldSet<fields> shown) {
    [[maybe_unused]] static const Struct fresh{};
    size_t index = 0;
    for_each_field(fields, [&](const auto& each) {
      if (shown.has(index++) || each.of(item) == each.of(fresh)) return;
      raw(" ").raw(each.name).raw("=").show(each.of(item));
    });
    return *this;
  }
  std::string take() { return std::move(out_); }

 private:
  static bool is_plain(std::string_view word) {
    if (word.empty()) return false;
    for (char c : word) {
      const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c >= '0' && c <= '9') ||
                         std::string_view("_.:/*+-").find(c) != std::string_view::npos;
      if (!plain) return false;
    }
    return true;
  }

  std::string out_;
};

}  // namespace dc::runtime::report
