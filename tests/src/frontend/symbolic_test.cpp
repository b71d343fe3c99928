// Shape expressions in both forms, against values worked out by hand.
#include "src/frontend/symbolic.h"

#include <gtest/gtest.h>

namespace dc::frontend {
namespace {

const Symbols kSizes = {{"s0", 12}, {"s1", 5}};

int64_t value(const std::string& expression) {
  const auto result = evaluate(expression, kSizes);
  EXPECT_TRUE(result.ok()) << expression;
  if (!result.ok() || !result->is_integer()) return -999;
  return result->numerator;
}

TEST(Symbolic, EvaluatesSrepr) {
  const std::string s0 = "Symbol('s0', positive=True, integer=True)", s1 = "Symbol('s1')";
  EXPECT_EQ(value("Integer(7)"), 7);
  EXPECT_EQ(value(s0), 12);
  EXPECT_EQ(value("Add(Mul(Integer(16), " + s0 + "), Integer(-16))"), 176);
  EXPECT_EQ(value("Mul(Rational(1, 2), " + s0 + ")"), 6);
  EXPECT_EQ(value("Pow(" + s0 + ", Integer(2))"), 144);
  EXPECT_EQ(value("FloorDiv(" + s0 + ", " + s1 + ")"), 2);
  EXPECT_EQ(value("PythonMod(Mul(Integer(-1), " + s0 + "), " + s1 + ")"), 3);
  EXPECT_EQ(value("Max(Integer(1), Add(" + s1 + ", Integer(-9)))"), 1);
  EXPECT_EQ(value("Min(" + s0 + ", " + s1 + ")"), 5);
  EXPECT_EQ(value("Equality(Mod(" + s0 + ", Integer(4)), Integer(0))"), 1);
  EXPECT_EQ(value("StrictLessThan(" + s0 + ", " + s1 + ")"), 0);
}

TEST(Symbolic, RefusesWhatItCannotEvaluate) {
  for (const char* text : {"", "Symbol('s9')", "Fancy(Integer(1))", "Integer(1", "Integer(1))",
                           "FloorDiv(Integer(1), Integer(0))", "Pow(Integer(10), Integer(40))"}) {
    EXPECT_FALSE(evaluate(text, kSizes).ok()) << text;
  }
  const std::string deep = [] {
    std::string text;
    for (int i = 0; i < 100000; ++i) text += "Add(";
    return text;
  }();
  EXPECT_FALSE(evaluate(deep, kSizes).ok());
}

TEST(Symbolic, ChecksConditionsInPython) {
  const SizeOf size_of = [](std::string_view input, int64_t dim) -> std::optional<int64_t> {
    if (input != "ids" || dim > 1) return std::nullopt;
    return dim == 0 ? 4 : 12;
  };
  EXPECT_EQ(holds("L['ids'].size()[1] % 4 == 0", size_of), true);
  EXPECT_EQ(holds("((-1) + L['ids'].size()[1]) != 11", size_of), false);
  EXPECT_EQ(holds("2 <= L['ids'].size()[0] and L['ids'].size()[0] <= 3", size_of), false);
  EXPECT_EQ(holds("2 <= L['ids'].size()[0] <= 4", size_of), true);
  EXPECT_EQ(holds("not (L['ids'].size()[1] // 5 > 2)", size_of), true);
  EXPECT_EQ(holds("L['other'].size()[0] == 1", size_of), std::nullopt);
  EXPECT_EQ(holds("__import__('os')", size_of), std::nullopt);
}

}  // namespace
}  // namespace dc::frontend
