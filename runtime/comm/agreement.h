// Collective decisions of the host threads: everybody learns what one rank found.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/comm/communicator.h"
#include "src/base/status.h"

namespace dc::runtime::comm {

// Ok if `mine` is ok on all ranks. Otherwise my own failure; or, if a rank before this one failed
// in the same words or this one did not fail, one of the same kind that names the first that did.
base::Status agree(Communicator& control, base::Status mine, std::string_view activity);
// Whether a status of agree() only says that another rank has reported a failure.
bool is_reported_elsewhere(const base::Status& status);

// True on all ranks if `mine` is true on any.
base::Result<bool> any_rank(Communicator& control, bool mine);

// Mismatch (76) naming the ranks whose text differs from rank 0's. `what`: "plan", "run options".
base::Status check_equal(Communicator& control, const std::string& digest, std::string_view what);

// Rank 0's text on every rank.
base::Result<std::string> broadcast_text(Communicator& control, const std::string& text);

}  // namespace dc::runtime::comm
