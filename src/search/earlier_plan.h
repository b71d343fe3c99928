// The chain of an earlier plan, tried after all others.
#pragma once

#include <functional>

#include "src/search/search_state.h"

namespace dc::search {

// Tries it whatever the effort: so the result is slower neither than without it nor than this
// chain. If it wins, `descend` goes on from it, for half the effort more. A chain that does not
// work for this step and its ranks is left aside.
base::Result<EarlierResult> try_earlier_plan(SearchState& state, const EarlierChain& earlier,
                                             const std::function<base::Status()>& descend);

}  // namespace dc::search
