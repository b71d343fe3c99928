// A search that starts from an earlier plan's chain too: its result is no slower than that chain
// here, whatever the effort, and a chain that does not work here costs nothing but itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/cost/analytic.h"
#include "src/frontend/import.h"
#include "src/search/auto.h"
#include "src/search/chains.h"
#include "src/sim/simulate.h"
#include "tests/source_dir.h"

namespace dc::search {
namespace {

using base::Bytes;
using base::Nanos;
using testing::HasSubstr;

ir::Step imported(int world) {
  auto step = frontend::import_archive(std::string(dc::kSourceDir) + "/tests/data/mlp.pt2");
  EXPECT_TRUE(step.ok()) << step.status().to_string();
  step->mesh.axes = {{"dp", world}};
  return std::move(*step);
}

// From a link that hides behind any kernel to one that nothing hides.
cost::AnalyticCost link(int64_t bytes_per_second, int64_t latency_ns = 1000) {
  cost::Rates rates = cost::generic_cpu(1);
  rates.gather_bytes = rates.reduce_bytes = {bytes_per_second};
  rates.collective_ns = latency_ns;
  return {1, rates};
}
cost::AnalyticCost slow_link() { return link(40'000'000); }

SearchResult best(const ir::Step& step, const passes::Options& options, const SearchOptions& search,
                  const cost::AnalyticCost& cost = slow_link()) {
  auto found = find_best(step, options, cost, search);
  EXPECT_TRUE(found.ok()) << found.status().to_string();
  return std::move(*found);
}

passes::Chain chain_of(std::string_view text) {
  auto chain = passes::parse_passes(text);
  EXPECT_TRUE(chain.ok()) << text;
  return std::move(*chain);
}

SearchOptions starting_from(const passes::Chain& chain, int effort = 48) {
  SearchOptions search;
  search.effort = effort;
  search.earlier = {"0123456789abcdef", {chain, std::nullopt}};
  return search;
}

Nanos time_of(const ir::Step& step, const passes::Chain& chain, const passes::Options& options) {
  ir::Step copy = step;
  std::vector<passes::Remark> remarks;
  const cost::AnalyticCost cost = slow_link();
  const auto change = passes::run_passes(copy, chain, {cost, options, remarks});
  EXPECT_TRUE(change.ok()) << change.status().to_string();
  return sim::simulate(copy, cost).time;
}

TEST(EarlierPlan, TheResultIsNoSlowerWhateverTheEffort) {
  const SearchResult earlier = best(imported(5), {}, {});
  for (const int world : {1, 2, 3, 8}) {
    const ir::Step step = imported(world);
    for (const int effort : {1, 3, 10, 48}) {
      const SearchResult found = best(step, {}, starting_from(earlier.chain, effort));
      ASSERT_TRUE(found.earlier);
      EXPECT_EQ(found.earlier->refused, "");
      EXPECT_EQ(found.earlier->time, time_of(step, earlier.chain, found.options));
      EXPECT_LE(found.time, found.earlier->time) << world << " " << effort;
      EXPECT_EQ(found.time, time_of(step, found.chain, found.options));
    }
  }
}

// To the nanosecond, although in nearly equal time less communication wins otherwise.
void expect_no_slower(const ir::Step& step, const cost::AnalyticCost& cost, int effort) {
  SearchOptions usual;
  usual.effort = effort;
  const Nanos without = best(step, {}, usual, cost).time;
  for (const NamedChain& named : named_chains()) {
    if (named.passes.find("offload-") != std::string_view::npos || named.name == "hsdp") continue;
    SCOPED_TRACE(std::string(named.name) + " effort " + std::to_string(effort));
    const SearchResult found = best(step, {}, starting_from(chain_of(named.passes), effort), cost);
    ASSERT_TRUE(found.earlier);
    EXPECT_EQ(found.earlier->refused, "");
    EXPECT_LE(found.time.v, found.earlier->time.v);
    EXPECT_LE(found.time.v, without.v);
    if (!found.earlier->wins) continue;
    EXPECT_LT(found.earlier->time, without);
  }
}

TEST(EarlierPlan, TheResultIsNoSlowerThanItNorThanWithoutIt) {
  for (const cost::AnalyticCost& cost :
       {link(int64_t{1} << 40, 1), link(int64_t{1} << 40, 10), slow_link()}) {
    for (const int world : {2, 4}) {
      for (const int effort : {1, 2, 12}) expect_no_slower(imported(world), cost, effort);
    }
  }
}

TEST(EarlierPlan, ItsRemarkSaysWhereItStarted) {
  const SearchResult found = best(imported(3), {}, starting_from(*find_chain("fsdp")));
  const base::Remark remark = describe(found);
  EXPECT_THAT(remark.text, HasSubstr("the chain of plan 0123456789ab, which takes "));
  EXPECT_EQ(remark.number("earlier_step_ns"), found.earlier->time.v);
  EXPECT_FALSE(describe(best(imported(3), {}, {})).number("earlier_step_ns"));
}

TEST(EarlierPlan, AChainThatDoesNotWorkHereIsLeftAside) {
  const ir::Step step = imported(3);
  const SearchResult without = best(step, {}, {});
  for (const auto& [name, why] : {std::pair("hsdp", "split-by-host does not know"),
                                  std::pair("deepcompile-offload-optimizer", "--offload-space")}) {
    const SearchResult found = best(step, {}, starting_from(*find_chain(name)));
    EXPECT_EQ(passes::print(found.chain), passes::print(without.chain)) << name;
    EXPECT_THAT(found.earlier->refused, HasSubstr(why));
    EXPECT_THAT(describe(found).text, HasSubstr("could not start from plan 0123456789ab: "));
    EXPECT_FALSE(describe(found).number("earlier_step_ns"));
  }
  passes::Options hosts;
  hosts.ranks_per_host = 2;  // three ranks do not stand two on a host
  const SearchResult found = best(step, hosts, starting_from(*find_chain("hsdp")));
  EXPECT_THAT(found.earlier->refused, HasSubstr("hosts of equally many ranks"));
}

TEST(EarlierPlan, AboveTheBudgetItDoesNotWin) {
  const ir::Step step = imported(4);
  passes::Options limited;
  ir::Step smallest = step;
  std::vector<passes::Remark> remarks;
  const cost::AnalyticCost cost = slow_link();
  ASSERT_TRUE(passes::run_passes(smallest, *find_chain("zero3"), {cost, {}, remarks}).ok());
  limited.budgets[ir::Space::Device] = Bytes{smallest.arena_bytes[ir::Space::Device]};
  const SearchResult found = best(step, limited, starting_from(*find_chain("zero0")));
  EXPECT_TRUE(found.fits);
  EXPECT_FALSE(found.earlier->fits);
  EXPECT_THAT(describe(found).text, HasSubstr(", above the budget"));
}

// The bound counts the kernels that the search's own chains have.
TEST(EarlierPlan, OtherKernelsHaveNoBound) {
  const ir::Step step = imported(4);
  SearchOptions search = starting_from(
      chain_of("normalize-graph,shard-parameters=2,insert-collectives,add-update,schedule,"
               "overlap-reductions,overlap-update,layout-arenas"),
      1);
  search.fusion = 0;
  const cost::AnalyticCost fast = link(int64_t{1} << 40, 1);
  const SearchResult found = best(step, {}, search, fast);
  ASSERT_TRUE(found.earlier);
  ASSERT_TRUE(found.earlier->wins);
  EXPECT_EQ(found.bound.v, 0);
  EXPECT_FALSE(found.certificate);
  EXPECT_THAT(describe(found).text, testing::Not(HasSubstr("bound")));
  search.earlier = starting_from(*find_chain("zero3")).earlier;
  const SearchResult own = best(step, {}, search, fast);
  EXPECT_GT(own.bound.v, 0);
  EXPECT_TRUE(own.certificate);
}

TEST(EarlierPlan, IsTriedInBothOrdersOfReductions) {
  ir::Step step = imported(4);
  step.accumulation = 4;
  passes::Options any;
  any.reduction_order = passes::ReductionOrder::Any;
  for (const char* name : {"zero0", "zero2", "zero3", "fsdp"}) {
    const SearchResult found = best(step, any, starting_from(*find_chain(name), 1));
    for (const auto order :
         {passes::ReductionOrder::PerMicroBatch, passes::ReductionOrder::PerStep}) {
      passes::Options one = any;
      one.reduction_order = order;
      EXPECT_LE(found.time, time_of(step, *find_chain(name), one)) << name;
    }
  }
}

TEST(EarlierPlan, OutOfTimeItIsNotTriedAndSaysSo) {
  SearchOptions search = starting_from(*find_chain("fsdp"));
  search.out_of_time = [] { return true; };
  const SearchResult found = best(imported(3), {}, search);
  ASSERT_TRUE(found.earlier);
  EXPECT_THAT(found.earlier->refused, HasSubstr("--search-time"));
}

}  // namespace
}  // namespace dc::search
