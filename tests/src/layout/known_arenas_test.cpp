#include "src/layout/known_arenas.h"

#include <gtest/gtest.h>

#include <vector>

namespace dc::layout {
namespace {

using Requests = std::vector<Request>;

TEST(KnownArenas, KnowsTheSameRequestsForTheSameBytesAlone) {
  const Requests some = {{0, 3, 64}, {1, 2, 128}}, others = {{0, 3, 64}, {1, 2, 192}};
  KnownArenas known;
  EXPECT_FALSE(known.find(some, 100));
  known.add(some, 100, 192);
  known.add(others, 100, 256);
  EXPECT_EQ(known.find(some, 100), 192);
  EXPECT_EQ(known.find(others, 100), 256);
  EXPECT_FALSE(known.find(some, 101));
  EXPECT_FALSE(known.find(Requests{some[0]}, 100));
}

TEST(KnownArenas, ForgetsWhatWasNotAskedForLongest) {
  const Requests asked = {{0, 0, 64}}, not_asked = {{0, 0, 128}};
  KnownArenas known;
  known.add(not_asked, 0, 1);
  known.add(asked, 0, 2);
  for (int32_t i = 1; i < 40; ++i) {
    known.add({{i, i, 64}}, 0, i);
    EXPECT_EQ(known.find(asked, 0), 2);
  }
  EXPECT_FALSE(known.find(not_asked, 0));
}

}  // namespace
}  // namespace dc::layout
