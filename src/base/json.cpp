#include "src/base/json.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "src/base/enum_names.h"

namespace dc::base {
namespace {

std::string_view kind_name(JsonValue::Kind kind) {
  constexpr auto kNames = enum_names<JsonValue::Kind>(
      {"null", "a boolean", "an integer", "a number", "a string", "an array", "an object"});
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace

// Builds the tree from events.
class JsonTreeBuilder : public JsonEvents {
 public:
  explicit JsonTreeBuilder(std::string_view text) : text_(text) {}

  bool null() override { return add(JsonValue()); }
  bool boolean(bool value) override { return add(JsonValue(value)); }
  bool integer(int64_t value) override { return add(JsonValue(value)); }
  bool real(double value) override { return add(JsonValue(value)); }
  bool string(std::string_view value) override { return add(JsonValue(std::string(value))); }
  bool key(std::string_view value) override {
    key_ = value;
    if (keys_.back().insert(key_).second) return true;
    problem = "the key '" + key_ + "' is given twice";
    return false;
  }
  bool begin_object() override { return open(JsonValue::object()); }
  bool end_object() override { return close(); }
  bool begin_array() override { return open(JsonValue::array()); }
  bool end_array() override { return close(); }

  JsonValue take() { return std::move(root_); }

 private:
  int line() {
    const size_t end = std::min(position == 0 ? 0 : position - 1, text_.size());
    while (counted_ < end) lines_ += text_[counted_++] == '\n';
    return lines_;
  }
  JsonValue* place(JsonValue value) {
    value.line_ = line();
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    JsonValue& parent = *stack_.back();
    if (parent.kind_ == JsonValue::Kind::Array) {
      return &parent.items_.emplace_back(std::move(value));
    }
    return &parent.members_.emplace_back(std::move(key_), std::move(value)).second;
  }
  bool add(JsonValue value) {
    place(std::move(value));
    return true;
  }
  // Pointers on the stack stay valid: a container grows only while it is on top.
  bool open(JsonValue value) {
    stack_.push_back(place(std::move(value)));
    keys_.emplace_back();
    return true;
  }
  bool close() {
    stack_.pop_back();
    keys_.pop_back();
    return true;
  }

  std::string_view text_;
  size_t counted_ = 0;
  int lines_ = 1;
  std::string key_;
  JsonValue root_;
  std::vector<JsonValue*> stack_;
  std::vector<std::unordered_set<std::string>> keys_;
};

JsonValue JsonValue::array() {
  JsonValue value;
  value.kind_ = Kind::Array;
  return value;
}

JsonValue JsonValue::object() {
  JsonValue value;
  value.kind_ = Kind::Object;
  return value;
}

Status JsonValue::expected(std::string_view what) const {
  const std::string where = line_ > 0 ? "line " + std::to_string(line_) + ": " : "";
  return Status(
      ErrorKind::BadInput, "DC1103",
      where + "expected " + std::string(what) + ", found " + std::string(kind_name(kind_)));
}

Result<bool> JsonValue::to_bool() const {
  if (kind_ != Kind::Bool) return expected("true or false");
  return bool_;
}

Result<int64_t> JsonValue::to_integer() const {
  if (kind_ != Kind::Integer) return expected("an integer");
  return integer_;
}

Result<double> JsonValue::to_real() const {
  if (kind_ == Kind::Integer) return static_cast<double>(integer_);
  if (kind_ != Kind::Real) return expected("a number");
  return real_;
}

Result<std::string> JsonValue::to_string() const {
  if (kind_ != Kind::String) return expected("a string");
  return string_;
}

Result<const std::vector<JsonValue>*> JsonValue::to_array() const {
  if (kind_ != Kind::Array) return expected("an array");
  return &items_;
}

Result<const std::vector<JsonValue::Member>*> JsonValue::to_object() const {
  if (kind_ != Kind::Object) return expected("an object");
  return &members_;
}

Result<const JsonValue*> JsonValue::require(std::string_view key) const {
  if (kind_ != Kind::Object) return expected("an object");
  if (const JsonValue* value = find(key)) return value;
  const std::string where = line_ > 0 ? "line " + std::to_string(line_) + ": " : "";
  return Status(ErrorKind::BadInput, "DC1104",
                where + "the key '" + std::string(key) + "' is missing");
}

const JsonValue* JsonValue::find(std::string_view key) const {
  for (const Member& member : members_) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

JsonValue& JsonValue::set(std::string key, JsonValue value) {
  DC_CHECK(kind_ == Kind::Object);
  for (Member& member : members_) {
    if (member.first == key) return member.second = std::move(value);
  }
  return members_.emplace_back(std::move(key), std::move(value)).second;
}

JsonValue& JsonValue::push(JsonValue value) {
  DC_CHECK(kind_ == Kind::Array);
  return items_.emplace_back(std::move(value));
}

void JsonValue::write(JsonWriter& writer, Order order) const {
  switch (kind_) {
    case Kind::Null:
      writer.null();
      return;
    case Kind::Bool:
      writer.boolean(bool_);
      return;
    case Kind::Integer:
      writer.integer(integer_);
      return;
    case Kind::Real:
      writer.real(real_);
      return;
    case Kind::String:
      writer.string(string_);
      return;
    case Kind::Array:
      writer.begin_array();
      for (const JsonValue& item : items_) item.write(writer, order);
      writer.end_array();
      return;
    case Kind::Object:
      break;
  }
  std::vector<const Member*> members;
  for (const Member& member : members_) members.push_back(&member);
  if (order == Order::Sorted) {
    std::sort(members.begin(), members.end(),
              [](const Member* a, const Member* b) { return a->first < b->first; });
  }
  writer.begin_object();
  for (const Member* member : members) member->second.write(writer.key(member->first), order);
  writer.end_object();
}

std::string JsonValue::dump(Order order, int indent) const {
  JsonWriter writer(indent);
  write(writer, order);
  return writer.take();
}

Result<JsonValue> parse_json_value(std::string_view text, std::string_view what,
                                   const JsonLimits& limits) {
  JsonTreeBuilder builder(text);
  DC_RETURN_IF_ERROR(parse_json(text, what, builder, limits));
  return builder.take();
}

}  // namespace dc::base
