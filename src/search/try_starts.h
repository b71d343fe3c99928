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

// All passes at once, operators fused as in the best so far that fits, each start with as much
// recomputed as the budget asks, all that may be, and half of that; the latter two only where the
// first is near the best. Then the best with its operators fused in the other ways.
base::Status try_other_starts(SearchState& state);

}  // namespace dc::search
