// What the search may try next, without any model.
#include "src/search/moves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dc::search {
namespace {

using passes::Chain;
using testing::ElementsAre;
using testing::IsEmpty;

Chain chain(const std::string& text) {
  auto parsed = passes::parse_passes(text);
  EXPECT_TRUE(parsed.ok()) << text;
  return std::move(*parsed);
}

std::vector<std::string> changes(const std::string& text, const char* pass, int64_t bytes) {
  std::vector<std::string> found;
  for (const Chain& other : changed(chain(text), *passes::find_pass(pass), bytes))
    found.push_back(passes::print(other));
  return found;
}

TEST(Fusions, AChainIsFusedInEachWay) {
  const std::string rest = "shard-parameters=3,insert-collectives,add-update,schedule";
  for (size_t from = 0; from < std::size(kFusions); ++from) {
    const Chain before = chain("normalize-graph,fuse-loss," + std::string(kFusions[from]) + rest);
    EXPECT_EQ(fusion_of(before), from);
    for (size_t to = 0; to < std::size(kFusions); ++to) {
      EXPECT_EQ(passes::print(fused(before, to)),
                "normalize-graph,fuse-loss," + std::string(kFusions[to]) + rest);
    }
  }
  const Chain other = chain("normalize-graph," + rest + ",fuse-greedily");
  EXPECT_THAT(fused(other, 0), IsEmpty()) << "fuses by its own rule";
}

TEST(RecomputeMoves, PartsLieBetweenBlockInputsAndAll) {
  const RecomputeMoves moves{{1000, 7400}, 4300};
  EXPECT_TRUE(moves.pays());
  EXPECT_EQ(moves.bytes(0), 0) << "the pass's word for the inputs of blocks";
  EXPECT_EQ(moves.bytes(1), 1100);
  EXPECT_EQ(moves.bytes(kRecomputeParts), 7400);
  EXPECT_EQ(moves.last_part(), 33) << "what is left to the step is within the budget";
  EXPECT_EQ(moves.part_of(999), -1);
  EXPECT_EQ(moves.part_of(1000), 0);
  EXPECT_EQ(moves.part_of(1 << 20), kRecomputeParts);
}

TEST(RecomputeMoves, PartsAreOfEveryBudget) {
  const RecomputeMoves small{{1000, 7400}, 2000}, large{{1000, 7400}, 9000};
  for (int part = 0; part <= small.last_part(); ++part)
    EXPECT_EQ(small.bytes(part), large.bytes(part));
  EXPECT_EQ(large.last_part(), kRecomputeParts);
}

TEST(RecomputeMoves, BelowBlockInputsOnlyOffloadingHelps) {
  EXPECT_FALSE((RecomputeMoves{{1000, 7400}, 900}.pays()));
  const RecomputeMoves offloading{{1000, 7400}, 900, true};
  EXPECT_TRUE(offloading.pays());
  EXPECT_EQ(offloading.last_part(), kRecomputeParts);
  EXPECT_FALSE((RecomputeMoves{{1000, 1000}, 2000, true}.pays())) << "nothing to make again";
}

TEST(RecomputeMoves, ReadsAndWritesTheArgument) {
  const RecomputeMoves moves{{1000, 7400}, 4300};
  EXPECT_EQ(moves.bytes_of(chain("recompute")), 4300) << "as the budget asks";
  EXPECT_EQ(moves.bytes_of(chain("recompute=2000")), 2000);
  EXPECT_EQ(moves.bytes_of(chain("recompute=0")), 1000);
  EXPECT_EQ(passes::print(moves.at(chain("recompute=2000,keep-resident"), 2)),
            "recompute=1200,keep-resident");
  EXPECT_EQ(passes::print(moves.at(chain("keep-resident"), 0)), "recompute=0,keep-resident");
}

TEST(Changed, AddsDropsAndResizes) {
  EXPECT_THAT(changes("fuse-gathers", "keep-resident", 1000),
              ElementsAre("keep-resident,fuse-gathers", "keep-resident=500,fuse-gathers"));
  EXPECT_THAT(changes("fuse-gathers", "overlap-reductions", 1000),
              ElementsAre("fuse-gathers,overlap-reductions", "fuse-gathers,overlap-reductions=10"))
      << "as much as fits may leave no room to others";
  EXPECT_THAT(changes("keep-resident,fuse-gathers", "prefetch-gathers", 1000),
              ElementsAre("keep-resident,fuse-gathers,prefetch-gathers"));
  EXPECT_THAT(changes("keep-resident=100,fuse-gathers", "keep-resident", 1000),
              ElementsAre("keep-resident=400,fuse-gathers", "keep-resident=25,fuse-gathers",
                          "keep-resident,fuse-gathers", "fuse-gathers"));
  EXPECT_THAT(changes("overlap-reductions=1000000000", "overlap-reductions", 1000),
              ElementsAre("overlap-reductions=250", "overlap-reductions", ""))
      << "more than all parameters is no size";
  EXPECT_THAT(changes("gather-by-block", "fuse-gathers", 1000), IsEmpty())
      << "passes that exclude each other";
}

TEST(Changed, LeavesToKeepJointlyWhatItDecides) {
  const std::string jointly = "schedule,recompute=0,fuse-gathers,keep-jointly=1000";
  for (const char* decided : {"recompute", "keep-resident", "keep-resident-greedily"})
    EXPECT_THAT(changes(jointly, decided, 100), IsEmpty()) << decided;
  EXPECT_THAT(changes("schedule,recompute=0,keep-parameters=400", "keep-resident", 100), IsEmpty());
  EXPECT_THAT(changes(jointly, "overlap-update", 100),
              ElementsAre("schedule,recompute=0,fuse-gathers,keep-jointly=1000,overlap-update"));
}

TEST(Changed, DropsNothingThatPlacesCollectivesForKeepJointly) {
  const std::string jointly = "schedule,recompute=0,fuse-gathers=100,keep-jointly=400";
  EXPECT_THAT(changes(jointly, "fuse-gathers", 1000),
              ElementsAre("schedule,recompute=0,fuse-gathers=400,keep-jointly=400",
                          "schedule,recompute=0,fuse-gathers=25,keep-jointly=400",
                          "schedule,recompute=0,fuse-gathers,keep-jointly=400"));
  EXPECT_THAT(changes("overlap-reductions=100,keep-jointly=400", "overlap-reductions", 1000),
              ElementsAre("overlap-reductions=400,keep-jointly=400",
                          "overlap-reductions=25,keep-jointly=400"))
      << "what the budget has room for is not for reductions alone";
}

std::vector<std::string> kept(const std::string& text, bool decides_recompute = true) {
  std::vector<std::string> found;
  for (const Chain& other : kept_otherwise(chain(text), decides_recompute))
    found.push_back(passes::print(other));
  return found;
}

TEST(KeptOtherwise, ExchangesBeginWithAllMadeAgainOrWithWhatTheChainMakesAgain) {
  EXPECT_THAT(kept("schedule,recompute,keep-resident,gather-by-block"),
              ElementsAre("schedule,recompute=0,gather-by-block,keep-jointly=400",
                          "schedule,recompute,gather-by-block,keep-jointly=400"));
  EXPECT_THAT(kept("schedule,gather-by-block,offload-activations"),
              ElementsAre("schedule,gather-by-block,offload-activations,keep-jointly=400",
                          "schedule,recompute=0,gather-by-block,offload-activations,"
                          "keep-jointly=400"))
      << "where nothing is made again, memory still buys whole parameters";
}

TEST(KeptOtherwise, TheyBeginOtherwise) {
  const char* parameters = "schedule,recompute=0,keep-parameters=400";
  const char* nothing_again = "schedule,keep-parameters=400";
  const char* apart = "schedule,recompute=0,keep-resident";
  EXPECT_THAT(kept("schedule,recompute=0,keep-jointly=400"),
              ElementsAre(parameters, nothing_again, "schedule,recompute,keep-jointly=400", apart));
  EXPECT_THAT(
      kept("schedule,recompute,keep-jointly=400"),
      ElementsAre(parameters, nothing_again, "schedule,recompute=0,keep-jointly=400", apart));
  EXPECT_THAT(kept("schedule,keep-jointly=400"),
              ElementsAre(parameters, "schedule,recompute=0,keep-jointly=400",
                          "schedule,recompute,keep-jointly=400", apart));
}

TEST(KeptOtherwise, OfParametersAloneOrOfBoth) {
  EXPECT_THAT(
      kept("schedule,recompute=0,keep-parameters=400"),
      ElementsAre("schedule,recompute=0,keep-jointly=400", "schedule,keep-parameters=400",
                  "schedule,recompute,keep-parameters=400", "schedule,recompute=0,keep-resident"));
}

TEST(KeptOtherwise, WhatTheUserSaysOfRecomputingStands) {
  EXPECT_THAT(
      kept("schedule,recompute=0,keep-jointly=400", false),
      ElementsAre("schedule,recompute=0,keep-parameters=400", "schedule,recompute,keep-jointly=400",
                  "schedule,recompute=0,keep-resident"));
}

TEST(WholeParts, AreOfAllParameters) {
  const Chain none = chain("schedule,recompute=0,fuse-gathers,keep-jointly=400");
  EXPECT_EQ(whole_part(none, 6400), 0);
  const Chain some = with_whole_part(none, 3, 6400);
  EXPECT_EQ(passes::print(some),
            "schedule,recompute=0,keep-resident=300,fuse-gathers,keep-jointly=400");
  EXPECT_EQ(whole_part(some, 6400), 3);
  EXPECT_EQ(passes::print(with_whole_part(some, 0, 6400)), passes::print(none));
  EXPECT_EQ(whole_part(chain("schedule,keep-resident,keep-jointly"), 6400), kWholeParts);
  EXPECT_EQ(whole_part(chain("schedule,keep-resident=9999,keep-jointly"), 6400), kWholeParts);
  EXPECT_EQ(whole_part(with_whole_part(none, 2, 10), 10), 2) << "parts of a byte";
}

TEST(KeepingOf, ExchangesOrPassesThatEachTakeWhatThereIs) {
  EXPECT_EQ(keeping_of(chain("schedule,recompute=0,keep-jointly=400")), Keeping::Jointly);
  EXPECT_EQ(keeping_of(chain("schedule,recompute=0,keep-parameters")), Keeping::Parameters);
  EXPECT_EQ(keeping_of(chain("schedule,keep-parameters")), Keeping::AllActivations);
  EXPECT_EQ(keeping_of(chain("schedule,recompute,keep-resident")), Keeping::Apart);
}

TEST(GroupedOtherwise, ByBlockAndBySize) {
  const auto others = [&](const char* text) {
    std::vector<std::string> found;
    for (const Chain& other : grouped_otherwise(chain(text), 1000))
      found.push_back(passes::print(other));
    return found;
  };
  EXPECT_THAT(others("recompute=0,gather-by-block,overlap-reductions"),
              ElementsAre("recompute=0,fuse-gathers=40,bucket-reductions,prefetch-gathers,"
                          "overlap-reductions",
                          "recompute=0,fuse-gathers,bucket-reductions,prefetch-gathers,"
                          "overlap-reductions",
                          "recompute=0,fuse-gathers=40,bucket-reductions=40,prefetch-gathers,"
                          "overlap-reductions"));
  EXPECT_THAT(others("fuse-gathers=40,bucket-reductions,prefetch-gathers,overlap-reductions"),
              ElementsAre("gather-by-block,overlap-reductions"));
  EXPECT_THAT(others("recompute=0,overlap-reductions"), IsEmpty());
}

TEST(ChangeablePasses, DependOnWhatTheUserAllows) {
  const auto has = [](const passes::Options& options, const char* name) {
    const auto passes = changeable_passes(options);
    return std::find(passes.begin(), passes.end(), passes::find_pass(name)) != passes.end();
  };
  passes::Options options;
  EXPECT_TRUE(has(options, "recompute"));
  EXPECT_FALSE(has(options, "offload-optimizer"));
  EXPECT_FALSE(has(options, "schedule"));
  options.offload_space = ir::Space::Host;
  options.recompute = passes::Recompute::Full;
  EXPECT_TRUE(has(options, "offload-optimizer"));
  EXPECT_FALSE(has(options, "recompute")) << "that is asked for";
}

}  // namespace
}  // namespace dc::search
