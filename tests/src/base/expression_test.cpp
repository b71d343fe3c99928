#include "src/base/expression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dc::base {
namespace {

constexpr const char* kGood[] = {
    "t0:f32=silu.default(self=a0);->t0",
    "t0:f32=silu.default(self=a0);t1:bf16=mul.Tensor(self=t0,other=a1);->t1",
    "t0:bool=gt.Scalar(self=a0,other=0.5);t1:f32=where.self(condition=t0,self=a0,other=a1);->t1,t0",
    "t0:i64=add.Scalar(self=a0,other=-3,alpha=2);->t0",
    "t0:f32=gelu.default(self=a0,approximate=tanh);->t0",
    "t0:f32=clamp.default(self=a0,min=-inf,max=none);->t0",
    "t0:f64=add.Scalar(self=a0,other=1e-300,flag=true);->t0",
    "t0:f32=full.default(value=nan);->t0",
    "t0:f32=exp.default(self=a0);t1:f32=sum.dim_IntList(self=t0,dim=[1,2]);->t0,t1",
    "t0:f32=mul.Tensor(self=a0,other=a0);t1:f32=amax.default(self=a0,dim=[0]);->t0,t1",
    "t0:f32=mean.dim(self=a0,dim=[0]);t1:f32=amin.default(self=a0,dim=[0]);->t0,t1",
    "t0:f32=amax.default(self=a0,dim=[1]);t1:f32=sub.Tensor(self=a0,other=t0);->t1,t0",
    ("t0:f32=mean.dim(self=a0,dim=[1]);t1:f32.row=rsqrt.default(self=t0);"
     "t2:f32.row=mul.Tensor(self=t1,other=a1);t3:f32=mul.Tensor(self=a0,other=t2);->t2,t3"),
    "a0=window(dim=3,begin=0,end=32);t0:f32=neg.default(self=a0);->t0",
    ("a1=window(dim=1,begin=2,end=3);a2=window(dim=1,begin=0,end=2);t0:f32=neg.default(self=a1);"
     "t1:bool=index_in.range(dim=1,begin=2,end=3);t2:f32=where.self(condition=t1,self=t0,other=a2);"
     "t3:f32=mul.Tensor(self=t2,other=a0);->t3"),
};

TEST(Expression, PrintsWhatItRead) {
  for (const char* text : kGood) {
    const Result<Expression> read = Expression::parse(text);
    ASSERT_TRUE(read.ok()) << text << "\n" << read.status().to_string();
    EXPECT_EQ(read->text(), text);
  }
}

TEST(Expression, CountsItsOperands) {
  EXPECT_EQ(Expression::parse(kGood[1])->operands(), 2u);
  EXPECT_EQ(Expression::parse(kGood[7])->operands(), 0u);
}

TEST(Expression, CountsTheRowValuesThatItKeeps) {
  // a0 and a1, two results, and t0, which is none and is read after it was folded.
  EXPECT_EQ(Expression::parse(kGood[12])->tensors(), 5u);
  EXPECT_EQ(Expression::parse(kGood[11])->tensors(), 3u);
  EXPECT_EQ(Expression::parse(kGood[0])->tensors(), 2u);
  EXPECT_TRUE(Expression::parse(kGood[11])->reads_rows());
  EXPECT_FALSE(Expression::parse(kGood[10])->reads_rows());
}

TEST(Expression, NumbersKeepTheirKindAndValue) {
  Expression expression = *Expression::parse("t0:f32=add.Scalar(self=a0,other=1.0);->t0");
  ExpressionArgument& other = expression.operations[0].arguments[1];
  EXPECT_EQ(other.kind, ExpressionArgumentKind::Float);
  for (const double value : {0.1, 1e300, -0.0, 5e-324, 123456789.0}) {
    other.number = value;
    const Result<Expression> read = Expression::parse(expression.text());
    ASSERT_TRUE(read.ok()) << expression.text();
    EXPECT_EQ(*read, expression) << expression.text();
  }
}

TEST(Expression, RefusesWhatIsMalformed) {
  const auto sixteen = [] {
    std::string text;
    for (int i = 0; i < 16; ++i) {
      text += "t" + std::to_string(i) + ":f32=neg.default(self=a" + std::to_string(i) + ");";
    }
    return text + "->t0,t1,t2,t3,t4,t5,t6,t7,t8,t9,t10,t11,t12,t13,t14,t15";
  };
  const auto five = [] {
    std::string text;
    for (int i = 0; i < 5; ++i) text += "t" + std::to_string(i) + ":f32=mean.dim(self=a0,dim=[0]);";
    return text + "->t0,t1,t2,t3,t4";
  };
  // Fifteen operands, one result, and a row value that is neither.
  const auto fifteen_and_rows = [] {
    std::string text = "t0:f32=amax.default(self=a0,dim=[0]);";
    for (int i = 1; i < 15; ++i)
      text += "t" + std::to_string(i) + ":f32=mul.Tensor(self=t" + std::to_string(i - 1) +
              ",other=a" + std::to_string(i) + ");";
    return text + "->t14";
  };
  const auto window = [](const std::string& operand, const std::string& range) {
    return operand + "=window(dim=" + range + ");t0:f32=neg.default(self=a0);->t0";
  };
  std::string long_one;
  for (int i = 0; i < 65; ++i) {
    long_one += "t" + std::to_string(i) +
                ":f32=neg.default(self=" + (i == 0 ? "a0" : "t" + std::to_string(i - 1)) + ");";
  }
  const std::pair<std::string, std::string> bad[] = {
      {"", "a value such as t0"},
      {"->", "a value such as t0"},
      {"->t0", "no value of an operation"},
      {"t0:f32=neg.default(self=a0);", "a value such as t0"},
      {"t1:f32=neg.default(self=a0);->t1", "must be t0"},
      {"t0:f31=neg.default(self=a0);->t0", "no element type 'f31'"},
      {"t0:f32=neg(self=a0);->t0", "the overload"},
      {"t0:f32=neg.default(self=t0);->t0", "does not come before its use"},
      {"t0:f32=neg.default(self=t7);->t0", "does not come before its use"},
      {"t0:f32=neg.default(self=a1);->t0", "a0 is never read"},
      {"t0:f32=neg.default(self=a0);t1:f32=neg.default(self=a0);->t1", "t0 is never read"},
      {"t0:f32=neg.default(self=a0);->t0,t0", "a result twice"},
      {"t0:f32=neg.default(self=a0);->t0 ", "the end"},
      {"t0:f32=neg.default(self=a0)->t0", "';'"},
      {"t0:f32=neg.default(self=a0,other=);->t0", "no value of an argument"},
      {"t0:f32=neg.default(self=a0,other=\"x\");->t0", "no value of an argument"},
      {"t0:f32=neg.default(self=a0,other=1e999);->t0", "no value of an argument"},
      {"t0:f32=neg.default(self=a16);->t0", "too many operands"},
      {"t0:f32=neg.default(self=a99999999999999999999);->t0", "no value of an argument"},
      {"t0:f32=neg.default(self=a00);->t0", "no value of an argument"},
      {sixteen(), "more than 16 operands, results"},
      {long_one + "->t64", "more than 64 operations"},
      {"t0:f32.rows=neg.default(self=a0);->t0", "'=' and an operator"},
      {"t0:f32.=neg.default(self=a0);->t0", "'row'"},
      {"t0:f32.row=neg.default(self=a0);->t0", "there are no reductions"},
      {"t0:f32.row=amax.default(self=a0,dim=[0]);->t0", "is marked as a row's"},
      {("t0:f32=amax.default(self=a0,dim=[0]);t1:f32=neg.default(self=a0);"
        "t2:f32.row=mul.Tensor(self=t0,other=t1);->t2"),
       "t2 is computed for each row, but reads t1"},
      {"t0:f32=amax.default(self=a0,dim=[0]);t1:f32=amax.default(self=t0,dim=[0]);->t1",
       "t1 folds t0"},
      {("t0:f32=amax.default(self=a0,dim=[0]);t1:f32.row=neg.default(self=t0);"
        "t2:f32=amin.default(self=t1,dim=[0]);->t2"),
       "t2 folds t1"},
      {"t0:f32=mul.Tensor(self=a0,other=t1);t1:f32=amax.default(self=t0,dim=[0]);->t1",
       "does not come before its use"},
      {("t0:f32=amax.default(self=a0,dim=[0]);t1:f32=sub.Tensor(self=a0,other=t0);"
        "t2:f32=amin.default(self=t1,dim=[1]);->t2"),
       "different dims"},
      {fifteen_and_rows(), "more than 16 operands, results and row values"},
      {"t0:f32=amax.default(self=a0,dim=[0]);->", "a value such as t0"},
      {"t0:f32=amax.default(self=a0);->t0", "the arguments of a reduction"},
      {"t0:f32=amax.default(self=a0,dim=[]);->t0", "the arguments of a reduction"},
      {"t0:f32=amax.default(self=a0,dim=[1,0]);->t0", "the arguments of a reduction"},
      {"t0:f32=amax.default(self=a0,dim=[1,1]);->t0", "the arguments of a reduction"},
      {"t0:f32=amax.default(self=a0,dim=[-1]);->t0", "the arguments of a reduction"},
      {"t0:f32=amax.default(self=a0,dim=[64]);->t0", "the arguments of a reduction"},
      {"t0:f32=amax.default(self=a0,dim=0);->t0", "the arguments of a reduction"},
      {"t0:f32=amax.default(self=0.5,dim=[0]);->t0", "the arguments of a reduction"},
      {"t0:f32=amax.default(self=a0,dim=[0]);t1:f32=amin.default(self=a0,dim=[1]);->t0,t1",
       "different dims"},
      {"t0:f32=amax.default(self=a0,dim=[0);->t0", "an integer"},
      {"t0:f32=amax.default(self=a0,dim=[0,]);->t0", "an integer"},
      {"t0:f32=amax.default(self=a0,dim=[1.5]);->t0", "an integer"},
      {five(), "more than 4 reductions"},
      {window("a0", "0,begin=0,end=0"), "no indices are in the range (dim=0,begin=0,end=0)"},
      {window("a0", "0,begin=3,end=2"), "no indices are in the range"},
      {window("a0", "0,begin=-1,end=2"), "no indices are in the range"},
      {window("a0", "-1,begin=0,end=2"), "no indices are in the range"},
      {window("a0", "64,begin=0,end=2"), "no indices are in the range"},
      {window("a0", "0,begin=0,end=99999999999999999999"), "an integer"},
      {window("a0", "0,begin=0,end=1.5"), "');'"},
      {window("a0", "0,begin=0"), "',end='"},
      {window("a0", "zero,begin=0,end=2"), "an integer"},
      {window("a1", "0,begin=0,end=2"), "a1 has a window and is never read"},
      {window("a16", "0,begin=0,end=2"), "no operand that can have a window"},
      {window("a", "0,begin=0,end=2"), "no operand that can have a window"},
      {"a0=window(dim=0,begin=0,end=2);" + window("a0", "0,begin=0,end=2"), "order"},
      {("a0=window(dim=0,begin=0,end=2);a1=window(dim=1,begin=0,end=2);"
        "t0:f32=mul.Tensor(self=a0,other=a1);->t0"),
       "different dims"},
      {("a0=window(dim=0,begin=0,end=2);t0:bool=index_in.range(dim=1,begin=0,end=2);"
        "t1:f32=neg.default(self=a0);->t0,t1"),
       "different dims"},
      {"t0:bool=index_in.range(dim=0,begin=0);->t0", "the arguments of index_in.range"},
      {"t0:bool=index_in.range(dim=0,end=2,begin=0);->t0", "the arguments of index_in.range"},
      {"t0:bool=index_in.range(dim=0,begin=0,end=a0);->t0", "the arguments of index_in.range"},
      {"t0:bool=index_in.range(dim=0,begin=2,end=1);->t0", "no indices are in the range"},
      {"t0:f32=index_in.range(dim=0,begin=0,end=1);->t0", "must be bool"},
  };
  for (const auto& [text, problem] : bad) {
    const Result<Expression> read = Expression::parse(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.status().code(), "DC1401") << text;
    EXPECT_EQ(read.status().kind(), ErrorKind::BadInput) << text;
    EXPECT_THAT(read.status().sentence(), testing::HasSubstr(problem)) << text;
  }
}

TEST(Expression, WordsAreNoNumbersNorNamesOfValues) {
  for (const char* word : {"tanh", "none_", "_x", "a", "ta1", "floor"})
    EXPECT_TRUE(is_expression_word(word)) << word;
  for (const char* word : {"", "none", "true", "inf", "nan", "a0", "t12", "1x", "a b", "x-y"})
    EXPECT_FALSE(is_expression_word(word)) << word;
}

}  // namespace
}  // namespace dc::base
