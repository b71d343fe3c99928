// find_best: the chain of passes with the shortest simulated step within the budget.
//
// One search over all decisions under the budget: starts that decide together what memory buys
// (try_starts.h), the named chains (named_trials.h), then a descent over single decisions
// (descent.h). Between steps of the same length the one with less communication wins, then the one
// with less memory. Under a budget it then searches as `recompute` Full and Off would, and takes
// the best of the three. Effort is a count of simulated schedules, by their work, so the result is
// deterministic unless `out_of_time` ends the search.
//
// More effort does not make the result slower: with less than the default effort the search is the
// same and ends earlier; with more, a search of eight times the default effort follows, then of
// eight times that, the last of which ends where the effort does, and the best of all is the
// result.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/bound/bound.h"
#include "src/search/scheduled_steps.h"
#include "src/search/smallest_chain.h"

namespace dc::search {

// The effort unless the user says it: 28, or with several micro-batches 14, without a budget or
// where they may offload 18, which take less than ten seconds for Llama-3-70B, where it may offload
// twenty, and of smaller models more: what 400 000 nodes are to the model's, at most 384. Where
// they may offload half of that, at most 1000. Above 50 000 nodes less than 28, in proportion, at
// least 8. Where the user says what is made again, half.
int default_effort(const ir::Step& imported, const passes::Options& options);

// A chain that an earlier plan has, tried at the end. If it is the best so far, the search goes on
// from it for half the effort more. A result that fits is then no slower than this chain under the
// same options, if that fits, nor than without it.
struct EarlierChain {
  std::string plan;  // its digest
  Candidate candidate;
};

struct SearchOptions {
  // The work of so many schedules that exchanges or offloading decide, for each order, at least
  // one; other schedules are an eighth to a half of one, by their passes. Under a budget the
  // searches that make all again, and nothing, get half of it more each, if it is above 8.
  int effort = 55;
  std::function<bool()> out_of_time;  // asked before each simulation; empty: never
  // Chains that must not be the result. If there are any, each best so far is verified.
  std::set<std::string> left_out;
  std::optional<base::Bytes> budget{};  // for the bound, if the options plan for other bytes
  bool first_fit = false;  // ends at the first chain within the budget: one is found exactly if
                           // the whole search finds one
  std::optional<EarlierChain> earlier{};
  // Of kFusions (moves.h): how every chain fuses operators, to compare with. Empty: the search
  // chooses.
  std::optional<size_t> fusion{};
};

struct NamedResult {
  std::string name;
  base::Nanos time;  // of the simulated step
};

// What became of SearchOptions::earlier.
struct EarlierResult {
  std::string plan;
  std::string refused;  // why the chain makes no schedule here; empty: it makes one
  base::Nanos time;     // of its simulated step
  bool fits = false;    // within the budget
  bool wins = false;    // was better than all found before, and the search went on from it
};

struct SearchResult {
  passes::Chain chain;
  passes::Options options;  // those given, with what the search decided
  base::Nanos time;         // of the simulated step
  base::Nanos bound;        // no plan within the budget is below it; 0 if it was not asked for
  bool fits = false;        // within the budget
  std::optional<NamedResult> named;  // the best named chain that fits, of those tried
  int simulated = 0;
  int spent = 0;  // of effort, as Trials counts it: kWorkOfOne for each of SearchOptions::effort
  bool cut_short = false;  // out of time before the end
  // Where nothing fits, and time was left to look for it: as find_smallest() finds it.
  std::optional<SmallestChain> smallest;
  // Chains that a pass or the verifier found a bug of ours in (Internal), with the error.
  std::vector<std::string> refused;
  std::optional<EarlierResult> earlier;
  std::optional<bound::LowerBound> certificate{};  // of the chain's reduction order
  bool all_named = true;                           // the effort was enough to try all named chains
};

// `imported` as passes::run_passes takes it. If no chain fits the budget, the one that needs least
// memory is returned: laying it out says what does not fit (80). A budget that the bound says is
// out of reach is answered by that at once. A chain that ends in a bug of ours is left out; if all
// do, the first error is the result.
base::Result<SearchResult> find_best(const ir::Step& imported, const passes::Options& options,
                                     const cost::CostModel& cost, const SearchOptions& asked);
// "chain-chosen": how many schedules were simulated, their times, what was left out.
base::Remark describe(const SearchResult& found);

}  // namespace dc::search
