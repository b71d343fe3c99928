// Where a search begins: the starts of starts.h, each tried as it is.
#pragma once

#include "src/search/search_state.h"

namespace dc::search {

// Those that decide together what memory buys, then the best of them with its operators fused in
// the other ways: most schedules that are tried later are slower than these, and need not be made
// to fit.
base::Status try_joint_starts(SearchState& state);

// With --offload-space, those starts that offload, then the best of them with its operators fused
// in the other ways. For budgets that nothing fits without.
base::Status try_offload_starts(SearchState& state);

// All passes at once, operators fused as in the best so far that fits. Each start with as much
// recomputed as the budget asks, and, where that is near the best, with all that may be. Where
// joint starts fit and the budget asks for more than half of what that saves, only the latter, and
// no start that gathers again. Then the best with its operators fused in the other ways.
base::Status try_other_starts(SearchState& state);

}  // namespace dc::search
