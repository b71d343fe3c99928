#include "src/ir/ops.h"

#include <gtest/gtest.h>

namespace dc::ir {
namespace {

TEST(Ops, TextAndKindAreInverse) {
  EXPECT_EQ(info(OpKind::AllGatherStart).text, "all_gather.start");
  EXPECT_EQ(op_from_text("reduce_scatter.done"), OpKind::ReduceScatterDone);
  EXPECT_EQ(op_from_text("aten"), std::nullopt);
  EXPECT_EQ(op_from_text("all_gather"), std::nullopt);
}

TEST(Ops, MutationMasks) {
  EXPECT_EQ(info(OpKind::AdamW).mutated, 7u);
  EXPECT_EQ(info(OpKind::AllReduceStart).mutated, 0u);
}

TEST(AtenOps, KnowsOverloadsExactly) {
  ASSERT_NE(aten_info("aten.mm.default"), nullptr);
  EXPECT_EQ(aten_info("aten.mm.default")->cls, AtenClass::Matmul);
  EXPECT_EQ(aten_info("aten.mm"), nullptr);
  EXPECT_EQ(aten_info("mm.default"), nullptr);
  EXPECT_EQ(aten_info(""), nullptr);
  EXPECT_EQ(aten_info("aten.zzz.default"), nullptr);
}

TEST(AtenOps, AliasAndTraits) {
  EXPECT_EQ(aten_info("aten._unsafe_view.default")->alias, AliasRule::View);
  EXPECT_EQ(aten_info("aten.clone.default")->alias, AliasRule::Fresh);
  EXPECT_EQ(aten_info("aten.detach.default")->cls, AtenClass::Identity);
  EXPECT_TRUE(aten_info("aten.native_dropout.default")->random);
  EXPECT_FALSE(aten_info("aten.native_dropout_backward.default")->random);
  EXPECT_TRUE(aten_info("aten.nonzero.default")->data_dependent);
  EXPECT_TRUE(aten_info("aten.add_.Tensor")->mutates);
}

}  // namespace
}  // namespace dc::ir
