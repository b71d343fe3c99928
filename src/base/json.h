// JsonValue: a small JSON document as a tree. For configuration and records, not for big graphs.
//
// Values remember their line, so that a complaint about a value can say where it stands. Object
// members keep their order; a key given twice is an error of the parse.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/json_events.h"
#include "src/base/json_writer.h"
#include "src/base/status.h"

namespace dc::base {

class JsonValue {
 public:
  enum class Kind : uint8_t { Null, Bool, Integer, Real, String, Array, Object };
  enum class Order : uint8_t { Insertion, Sorted };
  using Member = std::pair<std::string, JsonValue>;

  JsonValue() = default;
  explicit JsonValue(bool value) : kind_(Kind::Bool), bool_(value) {}
  explicit JsonValue(int64_t value) : kind_(Kind::Integer), integer_(value) {}
  explicit JsonValue(int value) : JsonValue(static_cast<int64_t>(value)) {}
  explicit JsonValue(double value) : kind_(Kind::Real), real_(value) {}
  explicit JsonValue(std::string value) : kind_(Kind::String), string_(std::move(value)) {}
  explicit JsonValue(const char* value) : JsonValue(std::string(value)) {}
  static JsonValue array();
  static JsonValue object();

  Kind kind() const { return kind_; }
  int line() const { return line_; }  // 0 when not parsed
  bool is_null() const { return kind_ == Kind::Null; }
  bool is_object() const { return kind_ == Kind::Object; }
  bool is_array() const { return kind_ == Kind::Array; }
  bool is_string() const { return kind_ == Kind::String; }

  // Checked access: BadInput naming the line, what was expected and what is there.
  Result<bool> to_bool() const;
  Result<int64_t> to_integer() const;
  Result<double> to_real() const;  // an integer counts as a number
  Result<std::string> to_string() const;
  Result<const std::vector<JsonValue>*> to_array() const;
  Result<const std::vector<Member>*> to_object() const;
  Result<const JsonValue*> require(std::string_view key) const;  // a member that must exist

  // Null when absent or when this is no object.
  const JsonValue* find(std::string_view key) const;
  const std::vector<JsonValue>& items() const { return items_; }   // empty unless an array
  const std::vector<Member>& members() const { return members_; }  // empty unless an object

  // Building. set() replaces an existing member; both return the stored value.
  JsonValue& set(std::string key, JsonValue value);
  JsonValue& push(JsonValue value);

  void write(JsonWriter& writer, Order order = Order::Insertion) const;
  std::string dump(Order order = Order::Insertion, int indent = 0) const;

 private:
  friend class JsonTreeBuilder;
  Status expected(std::string_view what) const;
  Kind kind_ = Kind::Null;
  bool bool_ = false;
  int line_ = 0;
  int64_t integer_ = 0;
  double real_ = 0;
  std::string string_;
  std::vector<JsonValue> items_;
  std::vector<Member> members_;
};

// `what` names the document in errors.
Result<JsonValue> parse_json_value(std::string_view text, std::string_view what,
                                   const JsonLimits& limits = {size_t{256} << 20, 100});

}  // namespace dc::base
