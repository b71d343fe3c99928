#include "src/analysis/liveness.h"

#include <gtest/gtest.h>

#include "src/analysis/memory.h"
#include "tests/src/analysis/small_steps.h"

namespace dc::analysis {
namespace {

using ir::f32;
using ir::OpKind;
using ir::StateRole;
using ir::StepBuilder;
using ir::ValueId;

struct Analyzed {
  explicit Analyzed(StepBuilder& builder)
      : storages(builder.step, builder.graph()),
        live(liveness(builder.step, builder.graph(), storages)) {}
  LiveRange range(ValueId value) const {
    for (const LiveRange& range : live.ranges) {
      if (range.value == storages.root(value)) return range;
    }
    return {};
  }
  StorageMap storages;
  Liveness live;
};

TEST(Storage, ViewsLeadToTheOwner) {
  StepBuilder b(2);
  int whole = b.entry("w", StateRole::Parameter, f32({8}), -1, 64);
  int range = b.entry("shard.w", StateRole::Shard, f32({32}), whole);
  ValueId w = b.state(whole), s = b.state(range);
  ValueId t = b.aten("aten.view.default", {w}, {"t", f32({2, 4})});
  ValueId u = b.aten("aten.t.default", {t}, {"u", f32({4, 2})});
  ValueId y = b.aten("aten.relu.default", {u}, {"y", f32({4, 2})});
  StorageMap storages(b.step, b.graph());
  EXPECT_EQ(storages.root(u), w);
  EXPECT_EQ(storages.owner(u), whole);
  EXPECT_EQ(storages.entry(u), whole);
  EXPECT_EQ(storages.owner(s), whole);
  EXPECT_EQ(storages.entry(s), range);
  EXPECT_EQ(storages.root(y), y);
  EXPECT_EQ(storages.owner(y), -1);
  EXPECT_EQ(state_bytes(b.step.state[0]).v, 256);  // the padding belongs to it
  EXPECT_EQ(state_bytes(b.step.state[1]).v, 0);
}

TEST(Liveness, ReachesThroughViewsToTheLastUse) {
  StepBuilder b(1);
  ValueId x = b.input("x", f32({4}));
  ValueId a = b.aten("aten.relu.default", {x}, {"a", f32({4})});
  ValueId v = b.aten("aten.view.default", {a}, {"v", f32({2, 2})});
  ValueId c = b.aten("aten.relu.default", {x}, {"c", f32({4})});
  ValueId d = b.aten("aten.relu.default", {v}, {"d", f32({2, 2})});
  b.graph().outputs = {{ir::OutputKind::Loss, "", c}};
  Analyzed got(b);
  EXPECT_EQ(got.range(a).first, b.position(a));
  EXPECT_EQ(got.range(a).last, b.position(d));
  EXPECT_EQ(got.range(x).first, 0);
  EXPECT_EQ(got.range(x).last, b.position(c));
  EXPECT_EQ(got.range(d).last, b.position(d));  // unused, but written
  EXPECT_EQ(got.range(c).last, b.position(d));  // the loss lives to the end
}

TEST(Liveness, InputsLiveFromTheStartWhereverTheirNodeStands) {
  StepBuilder b(1);
  ValueId x = b.input("x", f32({4}));
  ValueId a = b.aten("aten.relu.default", {x}, {"a", f32({4})});
  ValueId late = b.input("late", f32({4}));
  b.aten("aten.relu.default", {late}, {"c", f32({4})});
  Analyzed got(b);
  EXPECT_EQ(got.range(late).first, 0);
  EXPECT_GT(b.position(late), b.position(a));
}

TEST(Liveness, UnusedInputsStillReceiveTheirData) {
  StepBuilder b(1);
  ValueId unused = b.input("unused", f32({4})), x = b.input("x", f32({4}));
  ValueId a = b.aten("aten.relu.default", {x}, {"a", f32({4})});
  Analyzed got(b);
  EXPECT_EQ(got.range(unused).last, b.position(a));  // the first node that runs
}

// A start that joins another runs with it: a gathered buffer there must not lie in the input.
TEST(Liveness, UnusedInputsLiveAsLongAsTheFirstCollectiveStarts) {
  StepBuilder b(2);
  std::vector<ValueId> shards, started;
  for (const char* name : {"a", "b", "c"})
    shards.push_back(b.state(b.entry(name, StateRole::Shard, f32({32}))));
  ValueId unused = b.input("unused", f32({4}));
  for (size_t i = 0; i < shards.size(); ++i) {
    std::vector<ir::Arg> args = {{ir::Attr::Elements, int64_t{64}}, {ir::Attr::Shard, int64_t{32}}};
    if (i > 0) args.push_back({ir::Attr::Joins, int64_t{1}});
    started.push_back(
        b.op(OpKind::AllGatherStart, {shards[i]}, {{"s" + std::to_string(i), f32({64})}}, args));
  }
  for (size_t i = 0; i < started.size(); ++i)
    b.op(OpKind::AllGatherDone, {started[i]}, {{"g" + std::to_string(i), f32({64})}});
  Analyzed got(b);
  EXPECT_EQ(got.range(unused).last, b.position(started.back()));
}

TEST(Liveness, SeveralProgramsKeepTheirInputs) {
  StepBuilder b(1);
  ValueId x = b.input("x", f32({4}));
  ValueId a = b.aten("aten.relu.default", {x}, {"a", f32({4})});
  ValueId c = b.aten("aten.relu.default", {a}, {"c", f32({4})});
  b.step.programs.insert(b.step.programs.begin(), {b.graph(), 3});
  Analyzed got(b);
  EXPECT_EQ(got.range(x).last, b.position(c));
}

TEST(Liveness, WidestAliasDecidesTheBytes) {
  StepBuilder b(1);
  ValueId x = b.input("x", f32({4}));
  ValueId a = b.aten("aten.relu.default", {x}, {"a", f32({10})});
  ir::TensorType tail = f32({2});
  tail.offset = 8;
  ValueId v = b.aten("aten.slice.Tensor", {a}, {"v", tail});
  Analyzed got(b);
  EXPECT_EQ(got.range(v).bytes.v, 40);
}

TEST(Liveness, CollectivesHoldTheirOperandAndPadTheirResult) {
  StepBuilder b(3);
  int entry = b.entry("shard.w", StateRole::Shard, f32({32}));
  ValueId shard = b.state(entry);
  ValueId narrow = b.op(OpKind::Cast, {shard}, {{"narrow", ir::contiguous(ir::DType::BF16, {32})}});
  ir::TensorType whole = ir::contiguous(ir::DType::BF16, {70});
  ValueId started = b.op(OpKind::AllGatherStart, {narrow}, {{"g", whole}},
                         {{ir::Attr::Elements, int64_t{70}}, {ir::Attr::Shard, int64_t{32}}});
  ValueId other = b.aten("aten.relu.default", {shard}, {"other", f32({32})});
  ValueId done = b.op(OpKind::AllGatherDone, {started}, {{"f", whole}});
  ValueId use = b.aten("aten.relu.default", {done}, {"use", whole});
  b.op(OpKind::Release, {done}, {});
  Analyzed got(b);
  EXPECT_GT(b.position(done), b.position(other));
  EXPECT_EQ(got.range(narrow).last, b.position(done));
  EXPECT_EQ(got.range(done).value, started);
  EXPECT_EQ(got.range(done).first, b.position(started));
  EXPECT_EQ(got.range(done).last, b.position(use) + 1);
  EXPECT_EQ(got.range(done).bytes.v, 3 * 32 * 2);
  EXPECT_EQ(got.range(done).kind, SliceKind::Gathered);
  EXPECT_EQ(got.storages.owner(shard), entry);
}

TEST(Liveness, GradientsAreKnownByTheirReaders) {
  StepBuilder b(2);
  int hyperparameters =
      b.entry("hyperparameters", StateRole::Hyperparameters, ir::contiguous(ir::DType::F64, {16}));
  int row = b.entry("norm_row", StateRole::NormTable, ir::contiguous(ir::DType::F64, {3}));
  ValueId x = b.input("x", f32({64})), s = b.state(hyperparameters);
  ValueId g = b.aten("aten.relu.default", {x}, {"g", f32({64})});
  ValueId flat = b.op(OpKind::Flatten, {g}, {{"flat", f32({64})}});
  ValueId r = b.collective(OpKind::ReduceScatterStart, OpKind::ReduceScatterDone, {flat}, "r",
                           f32({32}), 64, 32);
  b.op(OpKind::SquareSum, {b.state(row), r, s}, {}, {{ir::Attr::Param, int64_t{0}}});
  Analyzed got(b);
  EXPECT_EQ(got.range(g).kind, SliceKind::Gradients);
  EXPECT_EQ(got.range(r).kind, SliceKind::Gradients);
  EXPECT_EQ(got.range(x).kind, SliceKind::Inputs);
}

// The gradient of a parameter that is added to the loss is loss_scale and what its other uses give.
TEST(Liveness, AnInputThatIsAddedToAGradientIsStillAnInput) {
  StepBuilder b(1);
  ValueId scale = b.input("loss_scale", f32({}));
  ValueId g = b.aten("aten.neg.default", {scale}, {"g", f32({})});
  b.op(OpKind::Accumulate, {g, scale}, {});
  Analyzed got(b);
  EXPECT_EQ(got.range(scale).kind, SliceKind::Inputs);
}

TEST(PeakMemory, KindsAddUpAndTheLargestComeFirst) {
  StepBuilder b(1);
  b.entry("w", StateRole::Parameter, f32({16}));
  b.entry("exp_avg.w", StateRole::Moment1, f32({16}));
  b.origin.module = "model.layer";
  ValueId x = b.input("x", f32({100}));
  ValueId a = b.aten("aten.relu.default", {x}, {"a", f32({1000})});
  ValueId c = b.aten("aten.relu.default", {a}, {"c", f32({500})});
  b.aten("aten.relu.default", {c}, {"d", f32({10})});
  auto scratch = [](const ir::Graph&, const ir::Node& node) {
    return base::Bytes{node.operands.size() == 1 ? 100 : 0};
  };
  PeakMemory peak = peak_memory(b.step, scratch);
  EXPECT_EQ(peak.position, b.position(c));
  EXPECT_EQ(peak.node, "aten.relu.default");
  EXPECT_EQ(peak.module, "model.layer");
  auto of = [&](SliceKind kind) { return peak.by_kind[static_cast<size_t>(kind)].v; };
  EXPECT_EQ(of(SliceKind::Parameters), 64);
  EXPECT_EQ(of(SliceKind::OptimizerState), 64);
  EXPECT_EQ(of(SliceKind::Activations), 4032 + 2048);  // 4000 and 2000 bytes on 64-byte boundaries
  EXPECT_EQ(of(SliceKind::Scratch), 128);
  EXPECT_EQ(peak.live.v, 64 + 64 + 4032 + 2048 + 128);
  ASSERT_GE(peak.largest.size(), 2u);
  EXPECT_EQ(peak.largest[0].name, "a");
  EXPECT_EQ(peak.largest[1].name, "c");
  EXPECT_NE(describe(peak).find("model.layer"), std::string::npos);
}

}  // namespace
}  // namespace dc::analysis
