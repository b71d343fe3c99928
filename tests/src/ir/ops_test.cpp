#include "src/ir/ops.h"

#include <gtest/gtest.h>

#include <string>

#include "src/ir/native_ops.h"

namespace dc::ir {
namespace {

TEST(Ops, TextAndKindAreInverse) {
  EXPECT_EQ(info(OpKind::AllGatherStart).text, "all_gather.start");
  EXPECT_EQ(op_from_text("reduce_scatter.done"), OpKind::ReduceScatterDone);
  EXPECT_EQ(op_from_text("aten"), std::nullopt);
  EXPECT_EQ(op_from_text("all_gather"), std::nullopt);
}

TEST(Ops, WhatIsWritten) {
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(writes(OpKind::AdamW, i), i < 3) << i;
  EXPECT_TRUE(writes(OpKind::AdamW, 6));
  EXPECT_TRUE(writes_any(OpKind::Copy));
  EXPECT_FALSE(writes_any(OpKind::AllReduceStart));
  EXPECT_TRUE(writes(OpKind::AllReduceInPlaceStart, 0));
  EXPECT_FALSE(writes(OpKind::Aten, 0));
}

// The gradient of an optimizer is followed by the scalars and the hyperparameters.
TEST(Ops, Gradients) {
  EXPECT_EQ(gradient_operand(OpKind::AdamW), 3);
  EXPECT_EQ(gradient_operand(OpKind::Sgd), 2);
  EXPECT_EQ(optional_operand(OpKind::AdamW), 6);
  EXPECT_EQ(optional_operand(OpKind::Copy), std::nullopt);
  EXPECT_EQ(gradient_operand(OpKind::Accumulate), 1);
  EXPECT_EQ(gradient_operand(OpKind::Copy), std::nullopt);
}

TEST(Ops, HalvesStandInPairs) {
  constexpr OpKind kKinds[] = {
#define DC_OP(kind, text, alias, provider, half, trait, rule, results, operands, attributes) \
  OpKind::kind,
#include "src/ir/ops.def"
#undef DC_OP
  };
  for (const OpKind start : kKinds) {
    if (!is_start(start)) continue;
    const OpKind done = done_of(start);
    EXPECT_EQ(start_of(done), start);
    const std::string text(info(start).text);
    EXPECT_EQ(info(done).text, text.substr(0, text.rfind('.')) + ".done");
  }
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

// Attention draws no random numbers.
TEST(NativeOps, DependOnAttributes) {
  const auto has_kernel = [](const std::string& op, const std::string& dropout) {
    const std::string x = " bf16[1,2,8,16](256,128,16,1)";
    const auto kernel =
        base::KernelSignature::parse("aten." + op + x + x + x + " dropout_p=" + dropout +
                                         " is_causal=1 ->" + x + " f32[1,2,8](16,8,1)",
                                     base::Provider::Native);
    EXPECT_TRUE(kernel.has_value()) << op;
    return kernel && has_native_kernel(*kernel);
  };
  for (const char* op : {"_scaled_dot_product_flash_attention.default",
                         "_scaled_dot_product_flash_attention_for_cpu.default"}) {
    EXPECT_TRUE(has_kernel(op, "0")) << op;
    EXPECT_FALSE(has_kernel(op, "0.1")) << op;
    EXPECT_FALSE(has_kernel(op, "1")) << op;
  }
}

}  // namespace
}  // namespace dc::ir
