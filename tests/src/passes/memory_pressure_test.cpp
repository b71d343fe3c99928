#include "src/schedule/memory_pressure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "src/cost/fixed.h"
#include "tests/src/analysis/small_steps.h"

namespace dc::schedule {
namespace {

using Found = std::pair<int, int32_t>;  // program and position

// Values that live beyond each other, some of one size, in each of two programs.
ir::Step two_programs() {
  ir::StepBuilder b(1);
  std::vector<ir::ValueId> values = {b.input("x", ir::f32({64}))};
  for (const int64_t size : {64, 256, 32, 256, 128, 64, 512, 16})
    values.push_back(b.aten("aten.exp.default", {values.back()}, {"v", ir::f32({size})}));
  for (size_t i = 0; i + 4 < values.size(); i += 2)
    b.aten("aten.add.Tensor", {values[i], values[i + 4]}, {"sum", ir::f32({64})});
  b.step.programs.push_back(b.step.programs[0]);
  return std::move(b.step);
}

// The highest first, of equal ones the first; as long as one is above.
std::vector<Found> by_hand(const MemoryPressure& pressure, int64_t limit) {
  std::vector<std::pair<int64_t, Found>> above;
  for (int p = 0; p < pressure.programs(); ++p) {
    for (int32_t i = 0; i < pressure.positions(p); ++i) {
      if (pressure.bytes(p, i) > limit) above.push_back({-pressure.bytes(p, i), {p, i}});
    }
  }
  std::sort(above.begin(), above.end());
  std::vector<Found> found;
  found.reserve(above.size());
  for (const auto& [bytes, where] : above) found.push_back(where);
  return found;
}

TEST(MemoryPressure, GivesUpOnePositionAfterAnother) {
  const ir::Step step = two_programs();
  const auto cost = cost::parse_fixed_cost("fixed()");
  const MemoryPressure whole(step, *cost, base::Bytes{1 << 20});
  EXPECT_EQ(whole.within(base::Bytes{1}).most_bytes(), whole.most_bytes());
  for (const int64_t limit : {int64_t{0}, whole.most_bytes().v / 64 * 32}) {
    MemoryPressure pressure = whole.within(base::Bytes{limit / 32 * 33});
    const std::vector<Found> wanted = by_hand(pressure, limit);
    ASSERT_GT(wanted.size(), 4u);
    std::vector<Found> found;
    for (auto spot = pressure.survey(); spot; spot = pressure.give_up(*spot))
      found.push_back({spot->program, spot->position});
    EXPECT_EQ(found, wanted);
    EXPECT_TRUE(pressure.has_given_up());
    EXPECT_FALSE(pressure.survey());
  }
  MemoryPressure roomy = whole;
  EXPECT_FALSE(roomy.survey());
}

TEST(MemoryPressure, CountsAgainWhatIsAddedAfterGivingUp) {
  const ir::Step step = two_programs();
  const auto cost = cost::parse_fixed_cost("fixed()");
  MemoryPressure pressure(step, *cost, base::Bytes{0});
  const auto first = pressure.survey();
  const auto second = pressure.give_up(*first);
  pressure.add(1, 0, 0, 1 << 20);
  const auto third = pressure.survey();
  ASSERT_TRUE(first && second && third);
  EXPECT_EQ((Found{third->program, third->position}), (Found{1, 0}));
  const auto fourth = pressure.give_up(*third);
  EXPECT_EQ((Found{fourth->program, fourth->position}), (Found{second->program, second->position}));
}

// Programs of many positions, so that most are far from the next one above the budget.
ir::Step long_programs() {
  ir::StepBuilder b(1);
  ir::ValueId value = b.input("x", ir::f32({64}));
  for (int i = 0; i < 9000; ++i) value = b.aten("aten.exp.default", {value}, {"v", ir::f32({64})});
  b.step.programs.push_back(b.step.programs[0]);
  return std::move(b.step);
}

TEST(MemoryPressure, SeesEveryChangeSinceTheLastSurvey) {
  const ir::Step step = long_programs();
  const auto cost = cost::parse_fixed_cost("fixed()");
  MemoryPressure pressure(step, *cost, base::Bytes{1 << 20});
  std::mt19937 random{3};
  const auto pick = [&](int32_t count) { return static_cast<int32_t>(random() % count); };
  const int32_t count = pressure.positions(0);
  for (int round = 0; round < 300; ++round) {
    const int program = pick(2);
    const int32_t first = pick(count), last = std::min(count - 1, first + pick(200));
    pressure.add(program, first, last, (pick(2) * 2 - 1) * (int64_t{1} << (18 + pick(3))));
    if (pick(20) == 0) pressure.add_to_state((pick(2) * 2 - 1) * (int64_t{1} << 17));
    const auto spot = pressure.survey();
    int64_t least = 0;
    std::optional<Found> wanted;
    for (int p = 0; p < 2; ++p) {
      for (int32_t i = 0; i < count; ++i) {
        if (pressure.room(p, i) >= least) continue;
        least = pressure.room(p, i);
        wanted = {p, i};
      }
    }
    ASSERT_EQ(spot.has_value(), wanted.has_value());
    if (spot) {
      EXPECT_EQ((Found{spot->program, spot->position}), *wanted);
    }
    int32_t from = pick(count), to = pick(count + 1), first_over = to, after_last = from;
    for (int32_t i = to; i-- > from;) {
      if (pressure.room(program, i) >= 0) continue;
      if (after_last == from) after_last = i + 1;
      first_over = i;
    }
    EXPECT_EQ(pressure.first_over(program, from, to), first_over);
    EXPECT_EQ(pressure.after_last_over(program, from, to), after_last);
  }
}

}  // namespace
}  // namespace dc::schedule
