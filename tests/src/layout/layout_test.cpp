#include "src/layout/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "src/base/units.h"
#include "src/layout/check.h"
#include "src/layout/ejections.h"
#include "src/layout/occupancy.h"
#include "src/layout/problem.h"
#include "tests/src/layout/training_requests.h"

namespace dc::layout {
namespace {

std::vector<Request> random_requests(std::mt19937& random, int count, int positions) {
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    int32_t first = static_cast<int32_t>(random() % static_cast<uint32_t>(positions));
    int32_t length = static_cast<int32_t>(random() % (random() % 4 == 0 ? 40u : 5u));
    requests.push_back({first, first + length, static_cast<int64_t>(random() % 2000)});
  }
  return requests;
}

// Slow and obvious: every pair of requests, every position of a request.
bool overlaps_somewhere(const std::vector<Request>& requests, const Layout& layout) {
  for (size_t a = 0; a < requests.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      bool in_time = requests[a].first <= requests[b].last && requests[b].first <= requests[a].last;
      bool in_space = layout.offsets[a] < layout.offsets[b] + requests[b].bytes &&
                      layout.offsets[b] < layout.offsets[a] + requests[a].bytes;
      if (in_time && in_space && requests[a].bytes > 0 && requests[b].bytes > 0) return true;
    }
  }
  return false;
}

int64_t slow_lower_bound(const std::vector<Request>& requests) {
  int64_t most = 0;
  for (const Request& at : requests) {
    int64_t live = 0;
    for (const Request& other : requests) {
      if (other.first <= at.first && at.first <= other.last)
        live += base::round_up(other.bytes, base::kAlignment);
    }
    most = std::max(most, live);
  }
  return most;
}

TEST(Layout, RandomRequestsNeverOverlap) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    auto requests = random_requests(random, 1 + static_cast<int>(random() % 120), 60);
    for (const Layout& layout :
         {greedy_by_size(requests), repaired_greedy(requests, 6), best_layout(requests)}) {
      EXPECT_TRUE(check(requests, layout).ok()) << check(requests, layout).to_string();
      EXPECT_FALSE(overlaps_somewhere(requests, layout));
      EXPECT_GE(layout.bytes, lower_bound(requests));
      EXPECT_EQ(layout.bytes % base::kAlignment, 0);
    }
    EXPECT_EQ(lower_bound(requests), slow_lower_bound(requests));
  }
}

TEST(Layout, CheckerAgreesWithTheSlowOneOnRandomOffsets) {
  std::mt19937 random(11);
  int rejected = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    auto requests = random_requests(random, 6, 30);
    Layout layout;
    layout.bytes = int64_t{64} * 200;
    for (size_t i = 0; i < requests.size(); ++i)
      layout.offsets.push_back(static_cast<int64_t>(random() % 150) * 64);
    bool overlap = overlaps_somewhere(requests, layout);
    rejected += overlap;
    EXPECT_EQ(check(requests, layout).ok(), !overlap);
  }
  EXPECT_GT(rejected, 100);
  EXPECT_LT(rejected, 1900);
}

TEST(Layout, CheckerRejectsBadOffsets) {
  std::vector<Request> requests = {{0, 1, 64}};
  EXPECT_EQ(check(requests, Layout{{}, 64, ""}).code(), "DC7001");
  EXPECT_EQ(check(requests, Layout{{-64}, 64, ""}).code(), "DC7002");
  EXPECT_EQ(check(requests, Layout{{32}, 128, ""}).code(), "DC7002");
  EXPECT_EQ(check(requests, Layout{{64}, 64, ""}).code(), "DC7002");
  EXPECT_TRUE(check(requests, Layout{{64}, 128, ""}).ok());
}

TEST(Layout, SamePositionMeansLiveTogether) {
  std::vector<Request> touching = {{0, 3, 64}, {3, 5, 64}};  // inclusive: both live at 3
  EXPECT_EQ(best_layout(touching).bytes, 128);
  std::vector<Request> apart = {{0, 3, 64}, {4, 5, 64}};
  EXPECT_EQ(best_layout(apart).bytes, 64);
}

TEST(Layout, NothingAndZeroBytes) {
  EXPECT_EQ(best_layout({}).bytes, 0);
  EXPECT_EQ(lower_bound({}), 0);
  std::vector<Request> requests = {{0, 0, 0}, {0, 4, 1}, {2, 2, 0}};
  Layout layout = best_layout(requests);
  EXPECT_EQ(layout.bytes, 64);
  EXPECT_TRUE(check(requests, layout).ok());
}

TEST(Layout, EqualRequestsGiveEqualLayouts) {
  auto requests = TrainingRequests({.layers = 6, .gradients_kept = true}).build();
  Layout a = best_layout(requests), b = best_layout(requests);
  EXPECT_EQ(a.offsets, b.offsets);
  EXPECT_EQ(a.algorithm, b.algorithm);
}

TEST(Layout, RepairBeatsThePlainOrderWhereItFails) {
  std::mt19937 random(3);
  int better = 0;
  for (int trial = 0; trial < 60; ++trial) {
    auto requests = random_requests(random, 80, 40);
    int64_t plain = greedy_by_size(requests).bytes, best = best_layout(requests).bytes;
    EXPECT_LE(best, plain);
    better += best < plain;
  }
  EXPECT_GT(better, 10);
}

TEST(Layout, WhatIsFoundWhereNothingIsEnoughIsFoundWhereItIs) {
  std::mt19937 random(4);
  int earlier = 0;
  for (int trial = 0; trial < 60; ++trial) {
    auto requests = random_requests(random, 80, 40);
    const Layout best = best_layout(requests);
    for (const int64_t enough : {best.bytes - 64, best.bytes, best.bytes + 64,
                                 (best.bytes + greedy_by_size(requests).bytes) / 2}) {
      const Layout found = best_layout(requests, enough);
      EXPECT_TRUE(check(requests, found).ok());
      if (best.bytes <= enough) {
        EXPECT_LE(found.bytes, enough);
      }
      earlier += found.bytes > best.bytes;
    }
  }
  EXPECT_GT(earlier, 5);
}

TEST(Layout, EjectionsBringBelowALimitWhatRepairsDoNot) {
  std::mt19937 random(5);
  int found = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const auto requests = random_requests(random, 300, 150);
    const Problem problem(requests);
    Ejections ejections(problem);
    Layout layout = repaired_greedy(requests, 8);
    const std::vector<int64_t> before = layout.offsets;
    const int64_t limit = (problem.peak() + layout.bytes) / 2 / 64 * 64;
    if (limit <= problem.peak() || limit >= layout.bytes) continue;
    if (!ejections.bring_below(limit, 100'000, layout.offsets)) {
      EXPECT_EQ(layout.offsets, before);
      continue;
    }
    layout.bytes = limit;
    EXPECT_TRUE(check(requests, layout).ok());
    ++found;
  }
  EXPECT_GT(found, 20);
}

TEST(Layout, TrainingStepsStayWithinThreePercent) {
  std::vector<TransformerShape> shapes = {
      {},                                           // 70B, gathered per use
      {.layers = 190},                              // more than 20 000 requests
      {.shards_kept = true},                        // reduced shards wait for the norm
      {.gathered = false, .gradients_kept = true},  // resident, whole gradients to the end
      {.tokens = 512},                              // weights outweigh activations
      {.layers = 8,
       .tokens = 512,
       .hidden = 320,
       .ffn = 864,
       .kv = 160,
       .vocabulary = 2048,
       .world = 2},
      {.layers = 2,
       .tokens = 64,
       .hidden = 64,
       .ffn = 128,
       .kv = 32,
       .vocabulary = 256,
       .world = 3,
       .gradients_kept = true},
  };
  for (const TransformerShape& shape : shapes) {
    auto requests = TrainingRequests(shape).build();
    Layout layout = best_layout(requests);
    EXPECT_TRUE(check(requests, layout).ok());
    EXPECT_LE(static_cast<double>(layout.bytes), 1.03 * static_cast<double>(lower_bound(requests)));
  }
}

// Asks for random ranges and compares with a map that has a cell per position and byte.
// `most`: bytes of a request. `sizes`: what the occupancy is told of them, and their ranges if
// `told`.
void expect_agreement(int moments, int requests, int64_t most, std::span<const int64_t> sizes,
                      bool told, std::mt19937& random) {
  std::vector<Span> spans;
  for (int i = 0; i < requests; ++i) {
    // Most requests are short, as in a training step.
    const int32_t first = static_cast<int32_t>(random() % static_cast<uint32_t>(moments));
    const uint32_t reach = random() % 3 == 0 ? static_cast<uint32_t>(moments) : 4;
    spans.push_back({first, std::min(moments - 1, first + static_cast<int32_t>(random() % reach))});
  }
  Occupancy occupancy = told ? Occupancy(moments, sizes, spans) : Occupancy(moments, sizes);
  const size_t cells = static_cast<size_t>(most * (requests + 1));
  for (int round = 0; round < 2; ++round) {
    std::vector<std::vector<char>> taken(static_cast<size_t>(moments), std::vector<char>(cells));
    std::shuffle(spans.begin(), spans.end(), random);
    occupancy.clear();
    for (const Span& span : spans) {
      const int32_t first = span.first, last = span.last;
      const int64_t bytes = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most));
      auto is_free = [&](int64_t offset) {
        for (int32_t t = first; t <= last; ++t) {
          const auto from = taken[static_cast<size_t>(t)].begin() + offset;
          if (std::any_of(from, from + bytes, [](char cell) { return cell != 0; })) return false;
        }
        return true;
      };
      int64_t expected = 0;
      while (!is_free(expected)) ++expected;
      ASSERT_EQ(occupancy.lowest_fit(first, last, bytes), expected);
      occupancy.take(first, last, expected, bytes);
      for (int32_t t = first; t <= last; ++t)
        std::fill_n(taken[static_cast<size_t>(t)].begin() + expected, bytes, 1);
    }
  }
}

TEST(Occupancy, AgreesWithAMapOfEveryByte) {
  std::mt19937 random(5);
  std::vector<int64_t> every(100);
  std::iota(every.begin(), every.end(), 1);
  const std::vector<int64_t> few = {3, 8, 17};
  for (int trial = 0; trial < 5; ++trial) {
    for (const int moments : {1, 13, 16, 300}) {
      for (const bool told : {false, true}) {
        expect_agreement(moments, 100, 20, std::span(every).first(20), told, random);
        expect_agreement(moments, 100, 20, few, told, random);     // sizes it was not told of
        expect_agreement(moments, 100, 100, every, told, random);  // more than it tells apart
      }
    }
  }
}

}  // namespace
}  // namespace dc::layout
