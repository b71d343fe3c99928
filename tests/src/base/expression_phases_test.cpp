#include "src/base/expression_phases.h"

#include <gtest/gtest.h>

namespace dc::base {
namespace {

// A softmax, whose rows are shifted and divided, and a scale that no reduction gives.
const Expression softmax() {
  return *Expression::parse(
      "t0:f32=mul.Tensor(self=a0,other=a1);t1:f32=amax.default(self=t0,dim=[1]);"
      "t2:f32=sub.Tensor(self=t0,other=t1);t3:f32=exp.default(self=t2);"
      "t4:f32=sum.dim_IntList(self=t3,dim=[1]);t5:f32.row=reciprocal.default(self=t4);"
      "t6:f32.row=neg.default(self=a2);t7:f32.row=mul.Tensor(self=t5,other=t6);"
      "t8:f32=mul.Tensor(self=t3,other=t7);->t0,t8");
}

TEST(ExpressionPhases, FollowWhatReductionsFold) {
  const ExpressionPhases phases = phases_of(softmax());
  EXPECT_EQ(phases.count, 3u);
  EXPECT_EQ(phases.first, (std::vector<size_t>{0, 1, 1, 1, 2, 2, 0, 2, 2}));
  EXPECT_EQ(phases.of_reduction(1), 0u);
  EXPECT_EQ(phases.of_reduction(4), 1u);
}

TEST(ExpressionPhases, ComputeAgainWhatTheyNeed) {
  const Expression expression = softmax();
  const ExpressionPhases phases = phases_of(expression);
  const auto computed = [&](size_t phase) {
    std::vector<size_t> found;
    const std::vector<bool> all = computed_in(expression, phases, phase);
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i]) found.push_back(i);
    return found;
  };
  EXPECT_EQ(computed(0), (std::vector<size_t>{0}));
  EXPECT_EQ(computed(1), (std::vector<size_t>{0, 2, 3}));
  EXPECT_EQ(computed(2), (std::vector<size_t>{0, 2, 3, 8}));
}

TEST(ExpressionPhases, AreOneWhereNothingIsReadAgain) {
  const Expression ends =
      *Expression::parse("t0:f32=neg.default(self=a0);t1:f32=amax.default(self=t0,dim=[0]);->t1");
  EXPECT_EQ(phases_of(ends).count, 1u);
  const Expression rows = *Expression::parse(
      "t0:f32=amax.default(self=a0,dim=[0]);t1:f32.row=neg.default(self=t0);->t1");
  EXPECT_EQ(phases_of(rows).count, 1u);
  EXPECT_EQ(phases_of(rows).first[1], 1u);
}

}  // namespace
}  // namespace dc::base
