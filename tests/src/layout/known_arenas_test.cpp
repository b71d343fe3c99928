#include "src/layout/known_arenas.h"

#include <gtest/gtest.h>

#include <vector>

namespace dc::layout {
namespace {

using Requests = std::vector<Request>;

Layout of(int64_t bytes, int rounds = 1) {
  Layout layout;
  layout.bytes = bytes;
  layout.rounds = rounds;
  return layout;
}

TEST(KnownArenas, KnowsTheSameRequestsAlone) {
  const Requests some = {{0, 3, 64}, {1, 2, 128}}, others = {{0, 3, 64}, {1, 2, 192}};
  KnownArenas known;
  EXPECT_FALSE(known.find(some, 100));
  known.add(some, 100, of(192));
  known.add(others, 100, of(256));
  EXPECT_EQ(known.find(some, 100), 192);
  EXPECT_EQ(known.find(others, 100), 256);
  EXPECT_FALSE(known.find(Requests{some[0]}, 100));
}

TEST(KnownArenas, ALayoutThatFitsAnswersForMoreUnlessEjectionsFoundIt) {
  const Requests fits = {{0, 3, 64}, {1, 2, 128}}, best = {{0, 3, 64}, {1, 2, 192}};
  const Requests ejected = {{0, 3, 64}, {1, 2, 256}};
  KnownArenas known;
  known.add(fits, 200, of(192));  // a better one may exist
  EXPECT_EQ(known.find(fits, 300), 192);
  EXPECT_EQ(known.find(fits, 192), 192);
  EXPECT_FALSE(known.find(fits, 191));
  known.add(best, 200, of(256));  // for 201, ejections may find a smaller one
  for (const int64_t enough : {200, 256, 300}) EXPECT_EQ(known.find(best, enough), 256);
  for (const int64_t enough : {0, 199, 201, 255}) EXPECT_FALSE(known.find(best, enough));
  Layout found = of(320);
  found.algorithm = kEjections;
  known.add(ejected, 330, found);
  EXPECT_EQ(known.find(ejected, 330), 320);
  for (const int64_t enough : {320, 329, 331, 400}) EXPECT_FALSE(known.find(ejected, enough));
}

TEST(KnownArenas, CountsWhatWasPlaced) {
  KnownArenas known;
  known.add({{0, 3, 64}, {1, 2, 128}}, 100, of(192, 5));
  known.add({{0, 3, 64}}, 100, of(64));
  EXPECT_EQ(known.placed(), 11);
}

TEST(KnownArenas, ForgetsWhatWasNotAskedForLongest) {
  const Requests asked = {{0, 0, 64}}, not_asked = {{0, 0, 128}};
  KnownArenas known;
  known.add(not_asked, 0, of(1));
  known.add(asked, 0, of(2));
  for (int32_t i = 1; i < 8; ++i) {
    known.add(Requests(300'000, {i, i, 64}), 0, of(i));
    EXPECT_EQ(known.find(asked, 0), 2);
  }
  EXPECT_FALSE(known.find(not_asked, 0));
  EXPECT_TRUE(known.find(Requests(300'000, {2, 2, 64}), 0));
}

}  // namespace
}  // namespace dc::layout
