#include "src/base/expression_shape.h"

#include <gtest/gtest.h>

namespace dc::base {
namespace {

using Sizes = std::vector<int64_t>;

std::optional<ExpressionShape> shape(const std::string& text, const std::vector<Sizes>& operands,
                                     const std::vector<Sizes>& results) {
  const Result<Expression> expression = Expression::parse(text);
  EXPECT_TRUE(expression.ok()) << text;
  const std::vector<std::span<const int64_t>> of_operands(operands.begin(), operands.end()),
      of_results(results.begin(), results.end());
  return shape_of(*expression, of_operands, of_results);
}

constexpr const char* kAdd = "t0:f32=add.Tensor(self=a0,other=a1);->t0";

std::string sum(const std::string& dims) {
  return "t0:f32=mul.Tensor(self=a0,other=a1);t1:f32=sum.dim_IntList(self=t0,dim=[" + dims +
         "]);->t1";
}

TEST(ExpressionShape, IsThatOfResultsWithoutReductions) {
  EXPECT_EQ(shape(kAdd, {{3, 1}, {4}}, {{3, 4}})->elements, Sizes({3, 4}));
  EXPECT_EQ(shape(kAdd, {{}, {1}}, {{3, 4}})->elements, Sizes({3, 4}));
  EXPECT_TRUE(shape(kAdd, {{}, {1}}, {{3, 4}})->folded.empty());
  EXPECT_FALSE(shape(kAdd, {{3, 1}, {5}}, {{3, 4}}));
  EXPECT_FALSE(shape(kAdd, {{3, 1}}, {{3, 4}}));
  EXPECT_FALSE(shape(kAdd, {{3, 1}, {4}}, {{3, 4}, {3, 4}}));
}

TEST(ExpressionShape, IsWhatOperandsAreBroadcastToWithReductions) {
  const auto rows = shape(sum("1,2"), {{2, 1, 4}, {3, 1}}, {{2}});
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->elements, Sizes({2, 3, 4}));
  EXPECT_EQ(rows->folded, std::vector<bool>({false, true, true}));
  EXPECT_TRUE(rows->by_rows);
  EXPECT_EQ(rows->first_column, 1u);
  const auto columns = shape(sum("0,1"), {{2, 1, 4}, {3, 1}}, {{1, 1, 4}});
  ASSERT_TRUE(columns);
  EXPECT_FALSE(columns->by_rows);
  EXPECT_EQ(columns->first_column, 2u);
  const auto all = shape(sum("0,1,2"), {{2, 1, 4}, {3, 1}}, {{}});
  ASSERT_TRUE(all);
  EXPECT_TRUE(all->by_rows);
  EXPECT_EQ(all->first_column, 0u);
  EXPECT_FALSE(shape(sum("1"), {{2, 5}, {3, 1, 4}}, {{2}}));
}

TEST(ExpressionShape, FoldsLeadingOrTrailingDimsOnly) {
  EXPECT_FALSE(shape(sum("1"), {{2, 3, 4}, {1}}, {{2, 4}}));
  EXPECT_FALSE(shape(sum("0,2"), {{2, 3, 4}, {1}}, {{3}}));
  EXPECT_TRUE(shape(sum("0,2"), {{2, 3, 1}, {1}}, {{3}}));
  EXPECT_TRUE(shape(sum("1"), {{2, 3, 1}, {1}}, {{2}}));
  EXPECT_FALSE(shape(sum("3"), {{2, 3, 4}, {1}}, {{2, 3, 4}}));
  EXPECT_FALSE(shape(sum("0"), {{0, 4}, {1}}, {{4}}));
}

TEST(ExpressionShape, OfResultsOfReductionsIsThatOfTheOtherDims) {
  for (const Sizes& result : std::vector<Sizes>{{2}, {2, 1}, {1, 2}, {2, 1, 1}})
    EXPECT_TRUE(shape(sum("1"), {{2, 3}, {1}}, {result}));
  for (const Sizes& result : std::vector<Sizes>{{}, {3}, {2, 3}, {2, 2}})
    EXPECT_FALSE(shape(sum("1"), {{2, 3}, {1}}, {result}));
  const std::string both =
      "t0:f32=neg.default(self=a0);t1:f32=amax.default(self=t0,dim=[0]);->t0,t1";
  EXPECT_TRUE(shape(both, {{3}}, {{2, 3}, {3}}));
  EXPECT_FALSE(shape(both, {{3}}, {{2, 3}, {2}}));
}

TEST(ExpressionShape, OfRowValuesFoldsTrailingDims) {
  const auto norm = [](const std::string& dims) {
    return "t0:f32=mean.dim(self=a0,dim=[" + dims +
           "]);t1:f32.row=mul.Tensor(self=t0,other=a1);"
           "t2:f32=mul.Tensor(self=a0,other=t1);->t1,t2";
  };
  const auto rows = shape(norm("2"), {{2, 3, 4}, {3, 1}}, {{2, 3, 1}, {2, 3, 4}});
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->elements, Sizes({2, 3, 4}));
  EXPECT_EQ(rows->first_column, 2u);
  EXPECT_TRUE(shape(norm("2"), {{2, 3, 4}, {}}, {{2, 3}, {2, 3, 4}}));
  EXPECT_TRUE(shape(norm("1,2"), {{2, 3, 4}, {2, 1, 1}}, {{2}, {2, 3, 4}}));
  // Leading dims; an operand with an element for each column; a row value with the folded dim; a
  // full value without it.
  EXPECT_FALSE(shape(norm("0"), {{2, 3, 4}, {3, 1}}, {{3, 4}, {2, 3, 4}}));
  EXPECT_FALSE(shape(norm("2"), {{2, 3, 4}, {3, 4}}, {{2, 3, 1}, {2, 3, 4}}));
  EXPECT_FALSE(shape(norm("2"), {{2, 3, 4}, {3, 1}}, {{2, 3, 4}, {2, 3, 4}}));
  EXPECT_FALSE(shape(norm("2"), {{2, 3, 4}, {3, 1}}, {{2, 3, 1}, {2, 3, 1}}));
}

TEST(ExpressionShape, OfAnOperandWithAWindowHasTheIndicesOfIt) {
  const std::string text =
      "a1=window(dim=1,begin=2,end=5);t0:f32=mul.Tensor(self=a0,other=a1);->t0";
  const auto whole = shape(text, {{4, 6}, {4, 3}}, {{4, 6}});
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole_sizes(*Expression::parse(text), 1, Sizes({4, 3}), *whole), Sizes({4, 6}));
  EXPECT_EQ(whole_sizes(*Expression::parse(text), 1, Sizes({3}), *whole), Sizes({6}));
  EXPECT_EQ(whole_sizes(*Expression::parse(text), 0, Sizes({4, 1}), *whole), Sizes({4, 1}));
  EXPECT_TRUE(shape(text, {{4, 6}, {1, 3}}, {{4, 6}}));
  EXPECT_TRUE(shape(text, {{4, 6}, {3}}, {{4, 6}}));
  for (const Sizes& wrong : std::vector<Sizes>{{4, 6}, {4, 1}, {4, 2}, {3, 3}, {}, {1, 4, 3}})
    EXPECT_FALSE(shape(text, {{4, 6}, wrong}, {{4, 6}}));
  EXPECT_FALSE(shape(text, {{4, 4}, {4, 3}}, {{4, 4}}));  // the window ends beyond the dim
  EXPECT_FALSE(shape(text, {{6}, {3}}, {{6}}));           // there is no such dim
  const std::string sums = "a1=window(dim=1,begin=2,end=5);" + sum("1");
  EXPECT_EQ(shape(sums, {{4, 6}, {4, 3}}, {{4}})->elements, Sizes({4, 6}));
  EXPECT_FALSE(shape(sums, {{4, 1}, {4, 3}}, {{4}}));
  const std::string range = "t0:bool=index_in.range(dim=1,begin=0,end=6);->t0";
  EXPECT_TRUE(shape(range, {}, {{4, 6}}));
  EXPECT_FALSE(shape(range, {}, {{4, 5}}));
  EXPECT_FALSE(shape(range, {}, {{6}}));
}

TEST(ExpressionShape, StridesOfReducedAreZeroAlongFoldedDims) {
  const auto columns = shape(sum("0"), {{2, 3, 1, 4}, {1}}, {{3, 4}});
  ASSERT_TRUE(columns);
  EXPECT_EQ(strides_of_reduced(*columns, Sizes({3, 4}), Sizes({8, 2})), Sizes({0, 8, 0, 2}));
  EXPECT_EQ(strides_of_reduced(*columns, Sizes({1, 3, 1, 1, 4}), Sizes({9, 8, 7, 6, 2})),
            Sizes({0, 8, 0, 2}));
}

}  // namespace
}  // namespace dc::base
