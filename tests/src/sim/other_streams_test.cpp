// Kernels outside compute: on the host, or concurrent with compute on the device. Two streams of
// collectives.
#include <gtest/gtest.h>

#include "src/cost/analytic.h"
#include "src/cost/fixed.h"
#include "src/cost/profiled.h"
#include "src/sim/bounds.h"
#include "src/sim/machine.h"
#include "src/sim/simulate.h"
#include "tests/src/analysis/random_streams.h"
#include "tests/src/ir/sample_steps.h"

namespace dc::sim {
namespace {

constexpr int64_t kAdd = 13, kAccumulate = 7, kAllReduce = 29;

cost::FixedCost model() {
  return cost::FixedCost(
      {{"add", {kAdd}, {}}, {"accumulate", {kAccumulate}, {}}, {"all_reduce", {kAllReduce}, {}}});
}

TEST(OtherStreams, AKernelOfTheHostRunsWhileComputeDoesAndIsWaitedFor) {
  ir::StepBuilder b(1);
  b.step.streams = {"compute", "host"};
  const auto add = [&](int stream, ir::ValueId x, ir::ValueId y) {
    const ir::ValueId sum = b.aten("aten.add.Tensor", {x, y}, {"s", ir::f32({8})});
    b.graph().edit(b.graph().value(sum).producer).stream = stream;
    return sum;
  };
  const ir::ValueId x = b.input("x", ir::f32({8}));
  const ir::ValueId first = add(0, x, x);
  const ir::ValueId on_host = add(1, first, first);
  const ir::ValueId next_to = add(0, first, x);
  add(0, on_host, next_to);
  const StepRun run = simulate(b.step, model());
  EXPECT_EQ(run.time.v, 3 * kAdd);
  EXPECT_EQ(run.exposed.v, 0);
  EXPECT_EQ(run.compute.v, 3 * kAdd);  // of compute alone
  EXPECT_EQ(run.communication.v, 0);
  EXPECT_EQ(run.programs[0].busy[1].v, kAdd);
  ASSERT_EQ(run.programs[0].intervals.size(), 4u);
  EXPECT_EQ(run.programs[0].intervals[1].stream, 1);
  EXPECT_EQ(run.programs[0].intervals[1].begin.v, kAdd);
}

// The gradient and the scalars go to the host one after the other, the update waits for all of
// them, its rounding for it, and compute for the way back.
TEST(OtherStreams, AnUpdateOnTheHostIsWaitedForByTheCopyBack) {
  base::Result<ir::Step> step = ir::parse(ir::kOnHost);
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  constexpr int64_t kMm = 20, kCast = 10, kUpdate = 300, kCopy = 50;
  const StepRun run = simulate(*step, cost::FixedCost({{"mm", {kMm}, {}},
                                                       {"cast", {kCast}, {}},
                                                       {"adamw", {kUpdate}, {}},
                                                       {"copy", {kCopy}, {}}}));
  const int64_t compute = 2 * kMm;  // before the copies
  const int64_t updated = compute + 3 * kCopy + kUpdate + kCast;
  EXPECT_EQ(run.programs[0].busy[3].v, kUpdate + kCast);
  EXPECT_EQ(run.time.v, updated + kCopy + kCopy);  // back, and into the parameter
  EXPECT_EQ(run.compute.v, compute + kCopy);
  EXPECT_EQ(run.exposed.v, run.time.v - run.compute.v);
}

struct Span {
  int64_t begin = 0, end = 0;
};

// When each node runs, from the rules and from which nodes touch the same bytes.
std::vector<Span> played(const ir::StepBuilder& b) {
  const ir::Graph& graph = b.step.programs.back().graph;
  const ir::Conflicts conflicts(b.step, graph);
  const std::vector<ir::NodeId> order = graph.order();
  std::vector<Span> spans(order.size());
  std::vector<int64_t> free(b.step.streams.size());  // of 0: what compute has come to
  for (size_t i = 0; i < order.size(); ++i) {
    const ir::Node& node = graph.node(order[i]);
    if (!ir::runs(node)) continue;
    const bool is_done = ir::is_done(node.kind);
    const auto stream = is_done ? size_t{0} : static_cast<size_t>(node.stream);
    int64_t begin = std::max(free[0], free[stream]);
    for (size_t j = 0; j < i; ++j) {
      if (conflicts.between(graph.node(order[j]), node)) begin = std::max(begin, spans[j].end);
    }
    int64_t time = node.kind == ir::OpKind::Accumulate ? kAccumulate : kAdd;
    if (ir::is_start(node.kind)) time = kAllReduce;
    spans[i] = {begin, begin + (is_done ? 0 : time)};
    free[stream] = spans[i].end;
  }
  return spans;
}

// A gather and a reduction begin at once on streams of their own.
int64_t both_at_once(const profile::Profile& profile) {
  const cost::AnalyticCost generic(1);
  const cost::ProfiledCost cost(profile, generic);
  Transfer gather = transfer(cost, cost::Collective::AllGather, {65536}, 2);
  Transfer reduction = transfer(cost, cost::Collective::ReduceScatter, {65536}, 2);
  reduction.stream = 2;
  const Event events[] = {{EventKind::Start, 0, -1, {}},
                          {EventKind::Start, 1, -1, {}},
                          {EventKind::Done, 0, -1, {}},
                          {EventKind::Done, 1, -1, {}}};
  const Schedule schedule{3, {events, events + 4}, {gather, reduction}};
  return Machine(schedule).finish().time.v;
}

TEST(OtherStreams, TwoCollectivesShareTheLinkAsTheProfileMeasured) {
  const auto taking = [](int64_t ns) { return base::Timing{ns, ns, 0, 9}; };
  profile::Profile profile;
  base::Measurements& measured = profile.measurements;
  measured.collectives = {{"all_gather", 2, 4096, taking(100)},
                          {"all_gather", 2, 65536, taking(900)},
                          {"reduce_scatter", 2, 4096, taking(100)},
                          {"reduce_scatter", 2, 65536, taking(700)}};
  // Latency until 100. Evenly: the reduction's 600 of wire end at 1300, when 200 of the gather's
  // 800 are left.
  EXPECT_EQ(both_at_once(profile), 1500);
  // 1.25 and 1.5 times what half of the rate makes of it: the reduction ends at 100 + 600 * 3; by
  // then 1800 / 2.5 = 720 of the gather's 800 are done.
  measured.together = {{{"all_gather", 2, 65536, taking(100 + 2 * 800 * 5 / 4)}, "reduce_scatter"},
                       {{"reduce_scatter", 2, 65536, taking(100 + 2 * 600 * 3 / 2)}, "all_gather"}};
  EXPECT_EQ(both_at_once(profile), 1980);
}

TEST(OtherStreams, RandomProgramsRunAsTheRulesSay) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const ir::StepBuilder b = ir::random_streams(seed, 8 + static_cast<int>(seed % 40));
    const std::vector<Span> expected = played(b);
    const StepRun run = simulate(b.step, model());
    const std::vector<ir::NodeId> order = b.step.programs.back().graph.order();
    size_t at = 0;
    int64_t end = 0;
    for (const Interval& interval : run.programs[0].intervals) {
      while (order[at] != interval.node) ++at;
      ASSERT_EQ(interval.begin.v, expected[at].begin) << seed << " " << at;
      ASSERT_EQ(interval.end.v, expected[at].end) << seed << " " << at;
      end = std::max(end, expected[at].end);
    }
    ASSERT_EQ(run.time.v, end) << seed;
    const Bounds least = bounds(b.step, model(), std::nullopt);
    ASSERT_LE(least.with_contention, run.time) << seed;
    ASSERT_LE(least.full_overlap, least.with_ends) << seed;
  }
}

}  // namespace
}  // namespace dc::sim
