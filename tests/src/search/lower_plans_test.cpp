// For how many bytes passes plan next, while what they make exceeds the budget.
#include "src/search/lower_plans.h"

#include <gtest/gtest.h>

#include <vector>

namespace dc::search {
namespace {

using base::Bytes;

constexpr int64_t kMiB = 1 << 20;

TEST(LowerPlans, AddressesGetMoreRoomEachTime) {
  LowerPlans lower(Bytes{1000 * kMiB});
  int64_t before = 1000 * kMiB, less_before = 0;
  int tries = 0;
  // The excess stays: addresses do not follow live bytes one to one.
  while (const auto planned = lower.next({16 * kMiB, true})) {
    const int64_t less = before - planned->v;
    EXPECT_GE(less, 16 * kMiB);
    EXPECT_GT(less, less_before);
    before = planned->v;
    less_before = less;
    ++tries;
  }
  EXPECT_EQ(tries, 3);
}

TEST(LowerPlans, LiveBytesThatDoNotFollowEndIt) {
  LowerPlans follows(Bytes{1000 * kMiB}), stays(Bytes{1000 * kMiB});
  EXPECT_TRUE(follows.next({64 * kMiB, false}));
  EXPECT_TRUE(follows.next({32 * kMiB, false}));
  EXPECT_TRUE(stays.next({64 * kMiB, false}));
  EXPECT_FALSE(stays.next({33 * kMiB, false}));
}

TEST(LowerPlans, LiveBytesThatFitLeaveTheAddresses) {
  LowerPlans lower(Bytes{1000 * kMiB});
  EXPECT_TRUE(lower.next({8 * kMiB, false}));
  EXPECT_TRUE(lower.next({8 * kMiB, true}));
}

TEST(LowerPlans, PlansForSomeBytesFewerThanItsFirst) {
  LowerPlans small(Bytes{1000 * kMiB}, Bytes{500 * kMiB});
  EXPECT_EQ(small.next({1, true}), Bytes{500 * kMiB - 1000 * kMiB / 1024})
      << "a part of the budget";
  LowerPlans none(Bytes{1000 * kMiB});
  EXPECT_FALSE(none.next({900 * kMiB, false}));
  EXPECT_FALSE(LowerPlans(Bytes{kMiB}).next({0, true})) << "it fits";
}

}  // namespace
}  // namespace dc::search
