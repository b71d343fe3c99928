#include "src/base/json.h"

#include <gtest/gtest.h>

#include <cmath>

namespace dc::base {
namespace {

std::string problem(std::string_view text) {
  auto value = parse_json_value(text, "x.json");
  return value.ok() ? "" : value.status().sentence();
}

TEST(Json, ReadsAndWritesTheSame) {
  const std::string text =
      R"({"b":[1,-2,3.5,1e-08,true,null],"a":{"s":"q\"\\\u00e9\n"},"z":9223372036854775807})";
  auto value = parse_json_value(text, "x.json");
  ASSERT_TRUE(value.ok()) << value.status().to_string();
  EXPECT_EQ(value->dump(),
            "{\"b\":[1,-2,3.5,1e-08,true,null],\"a\":{\"s\":\"q\\\"\\\\\xC3\xA9\\n\"},"
            "\"z\":9223372036854775807}");
  EXPECT_EQ(value->dump(JsonValue::Order::Sorted).substr(0, 5), "{\"a\":");
  EXPECT_EQ(*value->find("z")->to_integer(), INT64_MAX);
}

TEST(Json, IntegersStayExactOrFail) {
  auto value = parse_json_value("[9007199254740993, -9223372036854775808]", "x");
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(*value->items()[0].to_integer(), 9007199254740993);
  EXPECT_EQ(*value->items()[1].to_integer(), INT64_MIN);
  EXPECT_NE(problem("9223372036854775808").find("does not fit"), std::string::npos);
  EXPECT_NE(problem("99999999999999999999").find("does not fit"), std::string::npos);
  EXPECT_NE(problem("[1e999]").find("out of range"), std::string::npos);
}

TEST(Json, ErrorsNameTheLine) {
  EXPECT_NE(problem("{\n\"a\": 1,\n\"a\": 2}").find("x.json line 3"), std::string::npos);
  EXPECT_NE(problem("{\n\"a\": }").find("x.json line 2"), std::string::npos);
  auto value = parse_json_value("{\n \"a\":\n 5\n}", "x.json");
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(value->find("a")->line(), 3);
  auto wrong = value->find("a")->to_string();
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.status().sentence(), "line 3: expected a string, found an integer");
  EXPECT_FALSE(value->require("b").ok());
}

TEST(Json, RefusesMalformedText) {
  for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "nul", "\"\xff\"", "[1] 2", "01", "\"a"}) {
    EXPECT_FALSE(parse_json_value(text, "x").ok()) << text;
  }
}

TEST(Json, LimitsDepthAndSize) {
  const std::string deep = std::string(200, '[') + std::string(200, ']');
  EXPECT_NE(problem(deep).find("deep"), std::string::npos);
  EXPECT_TRUE(parse_json_value(deep, "x", {1000, 200}).ok());
  EXPECT_FALSE(parse_json_value(deep, "x", {100, 200}).ok());
}

TEST(JsonWriter, DoublesReadBackEqual) {
  for (const double v : {0.1, 1.0, -0.0, 1e300, 5e-324, 1.0 / 3.0, 123456789012345680.0}) {
    std::string text;
    append_json_real(text, v);
    auto value = parse_json_value(text, "x");
    ASSERT_TRUE(value.ok()) << text;
    EXPECT_EQ(*value->to_real(), v) << text;
  }
  std::string text;
  append_json_real(text, NAN);
  EXPECT_EQ(text, "\"NaN\"");
}

// Paths may be any bytes. A reader takes no JSON that is not UTF-8, so a checkpoint that named such
// a path could never be resumed.
TEST(JsonWriter, WhatIsNoUtf8IsReplaced) {
  std::string text;
  append_json_string(text, "caf\xe9/\"\xc3\xa9\t\xe6\xbc");
  EXPECT_EQ(text, "\"caf\xef\xbf\xbd/\\\"\xc3\xa9\\t\xef\xbf\xbd\xef\xbf\xbd\"");
  const auto value = parse_json_value(text, "text");
  ASSERT_TRUE(value.ok()) << value.status().to_string();
  EXPECT_EQ(*value->to_string(), "caf\xef\xbf\xbd/\"\xc3\xa9\t\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(JsonWriter, Indents) {
  JsonWriter writer(2);
  writer.begin_object().field("a", 1).key("b").begin_array().integer(2).end_array();
  writer.key("c").begin_object().end_object().end_object();
  EXPECT_EQ(writer.text(), "{\n  \"a\": 1,\n  \"b\": [\n    2\n  ],\n  \"c\": {}\n}");
}

// Writes down what it receives; ends the parse at a text.
struct Heard : JsonEvents {
  explicit Heard(std::string ends_at) : last(std::move(ends_at)) {}
  bool null() override { return add("null"); }
  bool boolean(bool value) override { return add(value ? "true" : "false"); }
  bool integer(int64_t value) override { return add(std::to_string(value)); }
  bool real(double value) override { return add(std::to_string(value)); }
  bool string(std::string_view value) override { return add(std::string(value)); }
  bool key(std::string_view value) override { return add(std::string(value)); }
  bool begin_object() override { return add("{"); }
  bool end_object() override { return add("}"); }
  bool begin_array() override { return add("["); }
  bool end_array() override { return add("]"); }
  bool add(const std::string& what) {
    text += what + " ";
    at = position;
    if (what != last) return true;
    problem = "there is " + last;
    return false;
  }

  std::string last, text;
  size_t at = 0;
};

TEST(JsonTee, PassesEverythingToBoth) {
  const std::string_view document = R"({"a": [1, 1.5, "s", true, false, null], "b": {}})";
  Heard first(""), second(""), alone("");
  JsonTee both(first, second);
  ASSERT_TRUE(parse_json(document, "it", both).ok());
  ASSERT_TRUE(parse_json(document, "it", alone).ok());
  EXPECT_EQ(alone.text, "{ a [ 1 1.500000 s true false null ] b { } } ");
  for (const Heard* one : {&first, &second}) {
    EXPECT_EQ(one->text, alone.text);
    EXPECT_EQ(one->at, alone.at);
  }
}

TEST(JsonTee, WhatEndsOneEndsBoth) {
  for (const bool is_first : {true, false}) {
    Heard first(is_first ? "2" : ""), second(is_first ? "" : "2");
    JsonTee both(first, second);
    const Status status = parse_json("[1,\n2,\n3]", "it", both);
    EXPECT_EQ(status.sentence(), "it line 2: there is 2");
    EXPECT_EQ(first.text, "[ 1 2 ");
    EXPECT_EQ(second.text, is_first ? "[ 1 " : "[ 1 2 ");
  }
}

}  // namespace
}  // namespace dc::base
