#include "src/frontend/item_stream.h"

#include <gtest/gtest.h>

namespace dc::frontend {
namespace {

class Collector : public ItemStream {
 public:
  Collector() {
    expect("a/list/*", 1);
    expect("a/map/*", 2);
    expect("whole", 3);
  }
  std::string found;

 protected:
  bool item(int id, std::string_view key, TapeValue value) override {
    found += std::to_string(id) + std::string(key) + "=" + show(value) + ";";
    return true;
  }

 private:
  static std::string show(TapeValue value) {
    if (value.is(TokenKind::String)) return std::string(value.text());
    if (value.is(TokenKind::Integer)) return std::to_string(value.integer());
    if (!value.is(TokenKind::Array) && !value.is(TokenKind::Object)) return "?";
    std::string text = value.is(TokenKind::Array) ? "[" : "{";
    for (const TapeValue child : children(value)) text += show(child) + ",";
    return text + (value.is(TokenKind::Array) ? "]" : "}");
  }
};

std::string items(std::string_view json) {
  Collector collector;
  const base::Status status = base::parse_json(json, "x", collector);
  return status.ok() ? collector.found : status.sentence();
}

TEST(ItemStream, HandsOverWhatWasAskedFor) {
  EXPECT_EQ(
      items(
          R"({"skip":{"list":[1]},"a":{"list":[1,"t",[2,[3]],{}],"other":[[9]],"map":{"k":{"x":5},"l":6}},"whole":{"list":[7]}})"),
      "1list=1;1list=t;1list=[2,[3,],];1list={};2k={x,5,};2l=6;3whole={list,[7,],};");
}

TEST(ItemStream, OtherShapesAreSkipped) {
  EXPECT_EQ(items("[1,2]"), "");
  EXPECT_EQ(items("3"), "");
  EXPECT_EQ(items(R"({"a":5,"whole":1})"), "3whole=1;");
}

TEST(Tape, UnionsHaveExactlyOneMember) {
  Tape tape;
  tape.open(TokenKind::Object);
  tape.add_text("as_int");
  tape.add(TokenKind::Integer, 4);
  tape.close();
  EXPECT_EQ(tape.root().union_tag().text(), "as_int");
  EXPECT_EQ(tape.root().union_value().integer(), 4);
  EXPECT_EQ(tape.root().find("as_int").integer(), 4);
  EXPECT_FALSE(tape.root().find("other").present());
  tape.clear();
  tape.open(TokenKind::Object);
  tape.close();
  EXPECT_FALSE(tape.root().union_tag().present());
  EXPECT_FALSE(tape.root().first().present());
}

}  // namespace
}  // namespace dc::frontend
