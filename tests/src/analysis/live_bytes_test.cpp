#include "src/analysis/live_bytes.h"

#include <gtest/gtest.h>

#include "src/analysis/memory.h"
#include "tests/src/analysis/small_steps.h"

namespace dc::analysis {
namespace {

using ir::f32;
using ir::Space;
using ir::StateRole;
using ir::StepBuilder;
using ir::ValueId;

LiveBytes analyze(const StepBuilder& builder, const ScratchBytes& scratch = {}) {
  const ir::Graph& graph = builder.step.programs.back().graph;
  return live_bytes(graph, liveness(builder.step, graph, StorageMap(builder.step, graph)), scratch);
}

// x -> a -> c -> d; 400 bytes of x, 4000 of a, 40 of c and d each.
struct Chain : StepBuilder {
  Chain() : StepBuilder(1) {
    x = input("x", f32({100}));
    a = aten("aten.relu.default", {x}, {"a", f32({1000})});
    c = aten("aten.relu.default", {a}, {"c", f32({10})});
    d = aten("aten.relu.default", {c}, {"d", f32({10})});
  }
  ValueId x, a, c, d;
};

TEST(LiveBytes, EveryPositionCountsWholeBlocks) {
  Chain chain;
  const LiveBytes bytes = analyze(chain);
  EXPECT_EQ(bytes.in(Space::Device), (std::vector<int64_t>{448, 448 + 4032, 4032 + 64, 64 + 64}));
  EXPECT_EQ(bytes.peak(Space::Device).position, 1);
  EXPECT_EQ(bytes.peak(Space::Device).bytes.v, 448 + 4032);
}

TEST(LiveBytes, WorkspaceCountsWhereItsKernelStands) {
  Chain chain;
  const LiveBytes bytes = analyze(chain, [&](const ir::Graph&, const ir::Node& node) {
    return base::Bytes{!node.results.empty() && node.results[0] == chain.c ? 1000 : 0};
  });
  EXPECT_EQ(bytes.in(Space::Device)[2], 4032 + 64 + 1024);
  EXPECT_EQ(bytes.peak(Space::Device).position, 2);
}

TEST(LiveBytes, SpacesAreApart) {
  Chain chain;
  chain.graph().edit_location(chain.a) = {Space::Host, 0, 4000};
  const LiveBytes bytes = analyze(chain);
  EXPECT_EQ(bytes.in(Space::Device), (std::vector<int64_t>{448, 448, 64, 128}));
  EXPECT_EQ(bytes.in(Space::Host), (std::vector<int64_t>{0, 4032, 4032, 0}));
  EXPECT_TRUE(bytes.in(Space::Disk).empty());
  EXPECT_EQ(bytes.peak(Space::Disk).bytes.v, 0);
  EXPECT_EQ(peak_memory(chain.step).live.v, 448);  // the device's own
}

TEST(LiveBytes, RangesOfStateTakeNoRoomOfTheirOwn) {
  StepBuilder b(2);
  const int whole = b.entry("w", StateRole::Parameter, f32({10}), -1, 64);
  b.entry("shard.w", StateRole::Shard, f32({32}), whole);
  const int there = b.entry("exp_avg.w", StateRole::Moment1, f32({10}));
  b.step.state.edit(static_cast<size_t>(there)).location.space = Space::Host;
  EXPECT_EQ(state_bytes(b.step, Space::Device).v, 256);
  EXPECT_EQ(state_bytes(b.step, Space::Host).v, 64);
}

}  // namespace
}  // namespace dc::analysis
