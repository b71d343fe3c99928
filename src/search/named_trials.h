// NamedTrials: the chains that have a name, tried as what the result must be no slower than.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "src/search/chains.h"
#include "src/search/search_state.h"

namespace dc::search {

class NamedTrials {
 public:
  // The reference must outlive it. `names_best`: whether best() will be asked for.
  NamedTrials(SearchState& state, bool names_best) : state_(state), names_best_(names_best) {}

  // Each as it is; then those that only memory keeps from being the best, by passes that plan for
  // less, and the fastest few of them with only the inputs of blocks kept.
  base::Status try_all();
  // Those that need too much still, by their smallest plan. Each takes a dozen schedules, so this
  // comes last: few were faster than the best by then, when they gave up less.
  base::Status try_smallest();

  // Whether the effort was enough for all of them.
  bool tried_all() const { return tried_all_; }
  // The fastest that fits as it was tried last, addresses included.
  std::optional<NamedResult> best();

 private:
  struct Named {
    std::string_view name;
    passes::Chain chain;
  };

  base::Status try_as_it_is(const NamedChain& named);

  SearchState& state_;
  const bool names_best_;
  base::Nanos least_{INT64_MAX};  // of those whose addresses keep the budget
  std::vector<Named> tried_;
  bool tried_all_ = true;
};

}  // namespace dc::search
