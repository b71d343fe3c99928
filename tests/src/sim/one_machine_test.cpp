#include "src/sim/one_machine.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/src/sim/random_schedule.h"

namespace dc::sim {
namespace {

using base::Nanos;

int64_t over_all_subsets(const std::vector<Job>& jobs) {
  int64_t most = 0;
  for (uint32_t set = 1; set < 1u << jobs.size(); ++set) {
    Nanos head{INT64_MAX}, time, tail{INT64_MAX};
    for (size_t i = 0; i < jobs.size(); ++i) {
      if ((set >> i & 1) == 0) continue;
      head = std::min(head, jobs[i].head);
      time += jobs[i].time;
      tail = std::min(tail, jobs[i].tail);
    }
    most = std::max(most, (head + time + tail).v);
  }
  return most;
}

TEST(OneMachine, FindsTheLargestOfAllSubsets) {
  Dice dice(3);
  for (int round = 0; round < 400; ++round) {
    std::vector<Job> jobs;
    for (int i = dice.below(9); i >= 0; --i)
      jobs.push_back({{dice.below(30)}, {dice.below(20)}, {dice.below(30)}});
    const Binding binding = one_machine(jobs);
    ASSERT_EQ(binding.sum().v, over_all_subsets(jobs)) << round;
    // It is such a subset.
    Nanos time;
    for (const Job& job : jobs)
      time += job.head >= binding.head && job.tail >= binding.tail ? job.time : Nanos{};
    ASSERT_EQ(time.v, binding.time.v) << round;
  }
}

TEST(OneMachine, NoJobsTakeNoTime) { EXPECT_EQ(one_machine({}).sum().v, 0); }

}  // namespace
}  // namespace dc::sim
