#include <gtest/gtest.h>

#include "src/cost/analytic.h"
#include "src/cost/fixed.h"
#include "tests/src/analysis/small_steps.h"

namespace dc::cost {
namespace {

using base::Bytes;
using ir::DType;

struct Small {
  Small() : b(2) {
    ir::ValueId x = b.input("x", ir::f32({512, 1024})), w = b.input("w", ir::f32({1024, 256}));
    mm = b.aten("aten.mm.default", {x, w}, {"y", ir::f32({512, 256})});
    view = b.aten("aten.view.default", {mm}, {"v", ir::f32({256, 512})});
    add = b.aten("aten.add.Tensor", {mm, mm}, {"z", ir::f32({512, 256})});
    cast = b.op(ir::OpKind::Cast, {add}, {{"c", ir::contiguous(DType::BF16, {512, 256})}});
  }
  const ir::Node& node(ir::ValueId value) {
    return b.graph().node(b.graph().value(value).producer);
  }
  ir::StepBuilder b;
  ir::ValueId mm, view, add, cast;
};

TEST(AnalyticCost, ProductsFollowArithmeticAndTheRestFollowsBytes) {
  Small s;
  AnalyticCost one(1), two(2);
  int64_t flops = int64_t{2} * 512 * 256 * 1024;
  EXPECT_EQ(one.compute(s.b.graph(), s.node(s.mm)).time.v, 2000 + flops / 80);
  EXPECT_EQ(two.compute(s.b.graph(), s.node(s.mm)).time.v, 2000 + flops / 160);
  EXPECT_EQ(one.compute(s.b.graph(), s.node(s.add)).time.v, 2000 + 3 * 512 * 256 * 4 / 8);
  EXPECT_EQ(one.compute(s.b.graph(), s.node(s.cast)).time.v, 2000 + 512 * 256 * 6 / 8);
  EXPECT_EQ(one.compute(s.b.graph(), s.node(s.view)).time.v, 0);
  EXPECT_EQ(one.compute(s.b.graph(), s.node(s.mm)).source, Source::Analytic);
}

TEST(AnalyticCost, AttentionAndConvolutionCountArithmetic) {
  ir::StepBuilder b(1);
  ir::ValueId q = b.input("q", ir::f32({2, 8, 512, 64}));
  ir::ValueId o = b.aten("aten._scaled_dot_product_flash_attention_for_cpu.default", {q, q, q},
                         {"o", ir::f32({2, 8, 512, 64})});
  ir::ValueId image = b.input("i", ir::f32({8, 64, 32, 32})),
              w = b.input("w", ir::f32({64, 64, 3, 3}));
  ir::ValueId y = b.aten("aten.convolution.default", {image, w}, {"y", ir::f32({8, 64, 32, 32})});
  AnalyticCost cost(1);
  auto time = [&](ir::ValueId value) {
    return cost.compute(b.graph(), b.graph().node(b.graph().value(value).producer)).time.v;
  };
  EXPECT_EQ(time(o), 2000 + int64_t{4} * 2 * 8 * 512 * 64 * 512 / 80);
  EXPECT_EQ(time(y), 2000 + int64_t{2} * 8 * 64 * 32 * 32 * 64 * 9 / 80);
}

TEST(AnalyticCost, AnOutputLayerIsThreeProductsAndALoss) {
  ir::StepBuilder b(1);
  const int64_t rows = 512, classes = 8192, depth = 512;
  const ir::ValueId hidden = b.input("h", ir::f32({rows, depth})),
                    weight = b.input("w", ir::f32({classes, depth})),
                    target = b.input("t", ir::contiguous(DType::I64, {rows})),
                    g = b.input("g", ir::f32({}));
  const ir::ValueId loss = b.op(ir::OpKind::LinearCrossEntropy, {hidden, weight, target, g},
                                {{"loss", ir::f32({})},
                                 {"total", ir::f32({})},
                                 {"gh", ir::f32({rows, depth})},
                                 {"gw", ir::f32({classes, depth})}});
  const ir::Node& node = b.graph().node(b.graph().value(loss).producer);
  const int64_t logits = rows * classes, parts = 16, kernels = 4 * parts;
  AnalyticCost cost(1);
  EXPECT_EQ(cost.compute(b.graph(), node).time.v,
            2000 * kernels + 6 * logits * depth / 80 + 3 * 4 * logits / 8);
  // A part of the logits, and little besides.
  EXPECT_GE(cost.scratch(b.graph(), node).bytes.v, 4 * logits / parts);
  EXPECT_LE(cost.scratch(b.graph(), node).bytes.v, 4 * logits / 4);
}

TEST(AnalyticCost, CollectivesGrowWithBytesAndVanishAlone) {
  AnalyticCost cost(1);
  EXPECT_EQ(cost.collective(Collective::AllGather, {1 << 20}, 1).time.v, 0);
  int64_t gather = cost.collective(Collective::AllGather, {1 << 20}, 4).time.v;
  int64_t scatter = cost.collective(Collective::ReduceScatter, {1 << 20}, 4).time.v;
  EXPECT_EQ(gather, 20000 + (3 << 18) / 4);
  EXPECT_GT(cost.collective(Collective::AllGather, {2 << 20}, 4).time.v, gather);
  EXPECT_EQ(cost.collective(Collective::AllReduce, {1 << 20}, 4).time.v, gather + scatter);
  EXPECT_EQ(cost.latency(Collective::AllGather, 4).v, 20000);
  EXPECT_EQ(cost.latency(Collective::AllReduce, 4).v, 40000);
  EXPECT_EQ(cost.latency(Collective::AllReduce, 1).v, 0);
  EXPECT_GT(cost.copy({1 << 20}, ir::Space::Device, ir::Space::Disk).time.v,
            cost.copy({1 << 20}, ir::Space::Device, ir::Space::Host).time.v);
}

TEST(FixedCost, ReadsItsTable) {
  auto parsed = parse_fixed_cost("fixed(mm=200us, all_gather=150us,cast=3ns+64KiB , copy=1ms)");
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  const FixedCost& cost = *parsed;
  Small s;
  EXPECT_EQ(cost.compute(s.b.graph(), s.node(s.mm)).time.v, 200000);
  EXPECT_EQ(cost.compute(s.b.graph(), s.node(s.add)).time.v, 0);
  EXPECT_EQ(cost.compute(s.b.graph(), s.node(s.cast)).time.v, 3);
  EXPECT_EQ(cost.scratch(s.b.graph(), s.node(s.cast)).bytes.v, 65536);
  EXPECT_EQ(cost.scratch(s.b.graph(), s.node(s.mm)).bytes.v, 0);
  EXPECT_EQ(cost.collective(Collective::AllGather, {1}, 2).time.v, 150000);
  EXPECT_EQ(cost.collective(Collective::ReduceScatter, {1}, 2).time.v, 0);
  EXPECT_EQ(cost.copy({1}, ir::Space::Device, ir::Space::Host).time.v, 1000000);
  EXPECT_TRUE(parse_fixed_cost("fixed()").ok());
}

TEST(FixedCost, RefusesWhatItCannotRead) {
  for (const char* text :
       {"", "mm=1us", "fixed(mm)", "fixed(mm=)", "fixed(mm=1)", "fixed(mm=1h)", "fixed(=1us)",
        "fixed(mm=-1us)", "fixed(mm=1us+2)", "fixed(mm=99999999999s)", "fixed(mm=1us"}) {
    auto parsed = parse_fixed_cost(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().code(), "DC7020");
  }
}

}  // namespace
}  // namespace dc::cost
