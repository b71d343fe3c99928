#include "src/sim/bounds.h"

#include <gtest/gtest.h>

#include "src/cost/fixed.h"
#include "src/sim/machine.h"
#include "src/sim/simulate.h"
#include "tests/src/sim/workload_builder.h"

namespace dc::sim {
namespace {

Transfer wire(int64_t ns, cost::Contention contention = {}) {
  return {1, Link::Ranks, {}, {ns}, contention};
}

// Two layers and their gradients. Each kernel takes `kernel`, a gather 60, a reduction 50, a square
// sum 1, the norm 2, an update 10; 100 bytes for each whole parameter.
Workload two_layers(int64_t kernel, cost::Contention contention = {}) {
  WorkloadBuilder b;
  const int32_t x = b.storage(0, true), h = b.storage(10), y = b.storage(10);
  const int32_t w0 = b.storage(100), w1 = b.storage(100);
  b.start(wire(60, contention), {}, {w0});
  b.kernel(kernel, {x, w0}, {h});
  b.start(wire(60, contention), {}, {w1});
  b.kernel(kernel, {h, w1}, {y});
  const int32_t g1 = b.storage(100), g0 = b.storage(100), r1 = b.storage(10), r0 = b.storage(10);
  const int32_t row1 = b.storage(0), row0 = b.storage(0), scalars = b.storage(0);
  b.kernel(kernel, {y, h}, {g1});
  b.start(wire(50, contention), {g1}, {r1});
  b.kernel(1, {r1}, {row1}, kUpdate);
  b.kernel(kernel, {y, x, g1}, {g0});
  b.start(wire(50, contention), {g0}, {r0});
  b.kernel(1, {r0}, {row0}, kUpdate);
  b.kernel(2, {row0, row1}, {scalars}, kBarrier);
  b.kernel(10, {r1, scalars}, {b.storage(0)}, kUpdate);
  b.kernel(10, {r0, scalars}, {b.storage(0)}, kUpdate);
  return b.work;
}

TEST(Bounds, FullOverlapIsTheBusiestResource) {
  EXPECT_EQ(bounds(two_layers(200)).full_overlap.v, 4 * 200 + 2 + 2 + 20);
  EXPECT_EQ(bounds(two_layers(10)).full_overlap.v, 2 * 60 + 2 * 50);
}

TEST(Bounds, TheEndsHideBehindNothing) {
  // First gather, kernels, last reduction, its square sum, norm, the two updates behind it.
  EXPECT_EQ(bounds(two_layers(200)).with_ends.v, 60 + 800 + 50 + 1 + 2 + 20);
  // The link: gathers, the second kernel and the two behind it before the last reduction may start.
  EXPECT_EQ(bounds(two_layers(10)).with_ends.v, 120 + 10 + 10 + 50 + 50 + 1 + 2 + 20);
}

TEST(Bounds, TheNormMakesUpdatesWait) {
  const Bounds found = bounds(two_layers(200));
  // Without it only the square sum and the update of the last gradient come after its reduction.
  EXPECT_EQ(found.without_norm.v, 60 + 800 + 50 + 1 + 10);
}

TEST(Bounds, ABudgetKeepsGathersFromRunningAhead) {
  // During the first kernel: x, h and w0 of 100 bytes. Nothing fits, so the second gather stands.
  EXPECT_EQ(bounds(two_layers(200), base::Bytes{110}).within_memory.v,
            60 + 200 + 60 + 600 + 50 + 1 + 2 + 20);
  EXPECT_EQ(bounds(two_layers(200), base::Bytes{160}).within_memory.v,
            60 + 200 + 30 + 600 + 50 + 1 + 2 + 20);  // half of it fits
  const Bounds roomy = bounds(two_layers(200), base::Bytes{10000});
  EXPECT_EQ(roomy.within_memory.v, roomy.with_ends.v);
}

TEST(Bounds, OverlapCostsWhatWasMeasured) {
  // Compute loses a fifth next to a transfer; 60 before the first kernel and 73 behind the last are
  // apart, so 220 - 133 of wire overlap: each nanosecond of them costs compute 1/6 (1000/1200).
  const Bounds found = bounds(two_layers(200, {1000, 1200}));
  EXPECT_EQ(found.with_ends.v, 933);
  EXPECT_EQ(found.with_contention.v, 933 + (220 - 133) / 6);
  // Overlap that saves nothing: everything one after the other.
  EXPECT_GE(bounds(two_layers(200, {2000, 2000})).with_contention.v, 800 + 24 + 220);
}

// A random order that respects every dependence; kernels that keep their order do so if asked to.
std::vector<int32_t> random_order(const Workload& work, const Precedence& before, bool keeps_order,
                                  Dice& dice) {
  const auto count = static_cast<int32_t>(work.traits.size());
  std::vector<int32_t> order;
  std::vector<bool> placed(static_cast<size_t>(count));
  const auto is_ready = [&](int32_t e) {
    const auto index = static_cast<size_t>(e);
    bool ready = !placed[index];
    for (int32_t i = before.first[index]; i < before.first[index + 1]; ++i)
      ready = ready && placed[static_cast<size_t>(before.before[static_cast<size_t>(i)])];
    if (!keeps_order || !work.traits[index].keeps_order) return ready;
    for (size_t k = 0; k < index; ++k) ready = ready && (placed[k] || !work.traits[k].keeps_order);
    return ready;
  };
  const bool in_order = dice.chance(20);
  while (static_cast<int32_t>(order.size()) < count) {
    const int32_t e = in_order ? static_cast<int32_t>(order.size()) : dice.below(count);
    if (!is_ready(e)) continue;
    placed[static_cast<size_t>(e)] = true;
    order.push_back(e);
  }
  return order;
}

TEST(Bounds, NoOrderBeatsThem) {
  Dice dice(11);
  for (int round = 0; round < 3000; ++round) {
    const int streams = 2 + round % 2;
    const Workload work = random_training(dice, streams, round % 3 == 0, round % 4 != 0);
    const Precedence before = precedence(work);
    const Bounds found = bounds(work);
    const Schedule schedule = ordered(work, before, random_order(work, before, false, dice));
    const int64_t time = Machine(schedule).finish().time.v;
    ASSERT_LE(found.full_overlap.v, found.with_ends.v) << round;
    ASSERT_LE(found.without_norm.v, found.with_ends.v) << round;
    ASSERT_LE(found.with_ends.v, time) << round;
    ASSERT_LE(found.with_contention.v, time) << round;
  }
}

// The most bytes alive while a kernel runs, each storage from its first to its last event.
int64_t peak_of(const Workload& work, const std::vector<int32_t>& order) {
  std::vector<size_t> at(order.size());
  for (size_t i = 0; i < order.size(); ++i) at[static_cast<size_t>(order[i])] = i;
  std::vector<int64_t> live(order.size());
  for (size_t s = 0; s < work.storages.size(); ++s) {
    size_t first = order.size(), last = 0;
    for (const Access& access : work.accesses) {
      if (access.storage != static_cast<int32_t>(s)) continue;
      first = std::min(first, at[static_cast<size_t>(access.event)]);
      last = std::max(last, at[static_cast<size_t>(access.event)]);
    }
    if (work.storages[s].from_start) first = 0;
    for (size_t i = first; i <= last && i < live.size(); ++i) live[i] += work.storages[s].bytes.v;
  }
  int64_t peak = 0;
  for (size_t i = 0; i < order.size(); ++i)
    peak = std::max(peak, live[i] + work.traits[static_cast<size_t>(order[i])].scratch.v);
  return peak;
}

TEST(Bounds, NoOrderWithinTheBudgetBeatsTheThird) {
  Dice dice(13);
  int binding = 0;
  for (int round = 0; round < 3000; ++round) {
    const Workload work = random_training(dice, 2 + round % 2, false, round % 4 != 0);
    const Precedence before = precedence(work);
    const std::vector<int32_t> order = random_order(work, before, true, dice);
    const Bounds found = bounds(work, base::Bytes{peak_of(work, order)});
    const int64_t time = Machine(ordered(work, before, order)).finish().time.v;
    ASSERT_LE(found.with_ends.v, found.within_memory.v) << round;
    ASSERT_LE(found.within_memory.v, time) << round;
    binding += found.within_memory > found.with_ends;
  }
  EXPECT_GT(binding, 100);  // the budget did matter
}

TEST(Bounds, OfAStepComeFromItsNodes) {
  const base::Result<ir::Step> step = ir::parse(R"(step @two stage=scheduled mesh=<dp=2> {
  input "x" : f32[4,8]
  parameter "w" : f32[8,8] placement=gathered_per_use gradient=sharded_each_micro_batch state=sharded shard=32
  state "w" : f32[32] flat_shard<dp> role=shard parameter="w"
  streams "compute" "comm"
  program @step repeat=3 {
    %x = input(name="x") : f32[4,8] varying<dp>
    %w = state(entry="w") : f32[32] flat_shard<dp>
    %t = aten.tanh.default(self=%x) : f32[4,8] varying<dp>
    %g = all_gather.start %w (elements=64, shard=32) : f32[8,8] stream=comm
    %f = all_gather.done %g : f32[8,8]
    %v = aten.t.default(self=%f) : f32[8,8] strides=(1,8)
    %h = aten.mm.default(self=%t, mat2=%v) : f32[4,8] varying<dp>
    release %f
    %loss = aten.mean.default(self=%h) : f32[] varying<dp>
    output loss %loss
  }
}
)");
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  const auto cost =
      cost::parse_fixed_cost("fixed(tanh=100ns, mm=200ns, mean=5ns, all_gather=150ns)");
  const Bounds found = bounds(*step, *cost);
  EXPECT_EQ(found.full_overlap.v, 3 * 305);
  EXPECT_EQ(found.with_ends.v,
            3 * (150 + 200 + 5));  // the product needs the gather, through the view
  EXPECT_EQ(found.within_memory.v, found.with_ends.v);
  EXPECT_EQ(found.with_contention.v, found.with_ends.v);
}

}  // namespace
}  // namespace dc::sim
