#include "src/analysis/schedule_view.h"

#include <gtest/gtest.h>

#include "src/analysis/liveness.h"
#include "tests/src/analysis/random_streams.h"

namespace dc::analysis {
namespace {

using ir::f32;
using ir::OpKind;
using ir::StepBuilder;
using ir::ValueId;

StepBuilder three_streams() {
  StepBuilder b(2);
  b.step.streams = {"compute", "comm", "host"};
  return b;
}

ValueId kernel(StepBuilder& b, int stream, std::vector<ValueId> operands, const char* name) {
  const ValueId value = b.aten("aten.relu.default", std::move(operands), {name, f32({8})});
  b.graph().edit(b.graph().value(value).producer).stream = stream;
  return value;
}

TEST(ScheduleView, AStartIsKnownToHaveEndedAtItsDone) {
  StepBuilder b(2);
  const ValueId x = b.input("x", f32({8}));
  const ValueId sum =
      b.collective(OpKind::AllReduceStart, OpKind::AllReduceDone, {x}, "sum", f32({8}), 8, 32);
  const ValueId y = kernel(b, 0, {sum}, "y");
  const ScheduleView view = schedule_view(b.step, b.graph());
  EXPECT_EQ(view.known, (std::vector<int32_t>{0, 2, 2, 3}));
  EXPECT_EQ(part_of(b.graph().node(view.order[1])), Part::Start);
  EXPECT_EQ(part_of(b.graph().node(view.order[2])), Part::Done);
  EXPECT_EQ(view.position[b.graph().value(y).producer.index()], 3);
  EXPECT_TRUE(view.waits.empty());
}

TEST(ScheduleView, AKernelOfAnotherStreamIsWaitedForThroughTheLastThatWaited) {
  StepBuilder b = three_streams();
  const ValueId x = b.input("x", f32({8}));
  const ValueId on_host = kernel(b, 2, {x}, "on_host");        // 1
  const ValueId on_comm = kernel(b, 1, {on_host}, "on_comm");  // 2: waits for 1
  const ValueId free = kernel(b, 0, {x}, "free");              // 3: waits for none
  const ValueId joined = b.aten("aten.add.Tensor", {on_comm, on_host}, {"joined", f32({8})});  // 4
  kernel(b, 2, {joined}, "last");  // 5: nothing waits for it
  const ScheduleView view = schedule_view(b.step, b.graph());
  EXPECT_EQ(view.waits, (std::vector<Wait>{{2, 1}, {4, 2}}));
  EXPECT_EQ(view.known, (std::vector<int32_t>{0, 4, 4, 3, 4, 5}));
  EXPECT_TRUE(free.valid());
  const StorageMap storages(b.step, b.graph());
  for (const LiveRange& range : liveness(b.step, b.graph(), storages).ranges) {
    const bool is_read_there = range.value == on_host || range.value == x;
    if (is_read_there) {
      EXPECT_EQ(range.last, 4);
    }
  }
}

// By position: whether the first has ended when the second begins, from the executor's rules and
// the waits, closed over all paths.
using Order = std::vector<std::vector<bool>>;
Order order_of(const StepBuilder& b, const ScheduleView& view, const std::vector<Wait>& waits) {
  const ir::Graph& graph = b.step.programs.back().graph;
  const size_t count = view.order.size();
  Order before(count, std::vector<bool>(count));
  for (size_t j = 0; j < count; ++j) {
    const ir::Node& later = graph.node(view.order[j]);
    if (!ir::runs(later)) continue;
    const int to = ir::is_done(later.kind) ? 0 : later.stream;
    for (size_t i = 0; i < j; ++i) {
      const ir::Node& earlier = graph.node(view.order[i]);
      if (!ir::runs(earlier)) continue;
      const int from = ir::is_done(earlier.kind) ? 0 : earlier.stream;
      const bool is_start =
          ir::is_done(later.kind) && graph.value(later.operands[0]).producer == earlier.id;
      before[i][j] = from == to || from == 0 || is_start;
    }
  }
  for (const Wait& wait : waits)
    before[static_cast<size_t>(wait.awaited)][static_cast<size_t>(wait.waiter)] = true;
  for (size_t k = 0; k < count; ++k) {
    for (size_t i = 0; i < k; ++i) {
      for (size_t j = k + 1; before[i][k] && j < count; ++j)
        before[i][j] = before[i][j] || before[k][j];
    }
  }
  return before;
}

// Pairs that touch the same bytes and are in no order.
int races(const StepBuilder& b, const ScheduleView& view, const Order& before) {
  const ir::Graph& graph = b.step.programs.back().graph;
  const ir::Conflicts conflicts(b.step, graph);
  int found = 0;
  for (size_t j = 0; j < before.size(); ++j) {
    for (size_t i = 0; i < j; ++i) {
      if (!before[i][j] && conflicts.between(graph.node(view.order[i]), graph.node(view.order[j])))
        ++found;
    }
  }
  return found;
}

int32_t expected_known(const StepBuilder& b, const ScheduleView& view, const Order& before,
                       size_t i) {
  const ir::Graph& graph = b.step.programs.back().graph;
  const ir::Node& node = graph.node(view.order[i]);
  const auto position = static_cast<int32_t>(i);
  if (!ir::runs(node) || ir::is_done(node.kind) || node.stream == 0) return position;
  for (size_t j = i + 1; j < before.size(); ++j) {
    const ir::Node& later = graph.node(view.order[j]);
    const bool is_its_done =
        ir::is_done(later.kind) && graph.value(later.operands[0]).producer == node.id;
    const bool is_compute = ir::is_done(later.kind) || (ir::runs(later) && later.stream == 0);
    if (ir::is_start(node.kind) ? is_its_done : is_compute && before[i][j])
      return static_cast<int32_t>(j);
  }
  return static_cast<int32_t>(before.size()) - 1;
}

TEST(ScheduleView, WaitsAreEnoughAndNoneIsTooManyOnRandomStreams) {
  int waits = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const StepBuilder b = ir::random_streams(seed, 8 + static_cast<int>(seed % 24));
    const ir::Graph& graph = b.step.programs.back().graph;
    const ScheduleView view = schedule_view(b.step, graph);
    const Order before = order_of(b, view, view.waits);
    ASSERT_EQ(races(b, view, before), 0) << seed;
    for (size_t w = 0; w < view.waits.size(); ++w) {
      std::vector<Wait> fewer = view.waits;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(w));
      ASSERT_GT(races(b, view, order_of(b, view, fewer)), 0) << seed;
    }
    for (size_t i = 0; i < before.size(); ++i)
      ASSERT_EQ(view.known[i], expected_known(b, view, before, i)) << seed << " " << i;
    waits += static_cast<int>(view.waits.size());
  }
  EXPECT_GT(waits, 500);  // the programs have something to wait for
}

TEST(Liveness, BytesLiveUntilComputeKnowsOfTheEndOfWhatUsesThem) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    const StepBuilder b = ir::random_streams(seed, 24);
    const ir::Graph& graph = b.step.programs.back().graph;
    const StorageMap storages(b.step, graph);
    const Liveness live = liveness(b.step, graph, storages);
    const ir::Conflicts conflicts(b.step, graph);
    for (const LiveRange& range : live.ranges) {
      for (size_t i = 0; i < live.order.size(); ++i) {
        for (const auto& [root, writes] : conflicts.touches(graph.node(live.order[i]))) {
          if (root != range.value) continue;
          ASSERT_LE(range.first, static_cast<int32_t>(i)) << seed;
          ASSERT_GE(range.last, live.known[i]) << seed;
        }
      }
    }
  }
}

}  // namespace
}  // namespace dc::analysis
