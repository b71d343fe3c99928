// The tail of a reduction: its done halves and the small kernels that depend on them; and how far
// the tail may move. Shared by the passes that move reductions.
#pragma once

#include <vector>

#include "src/schedule/time_axis.h"

namespace dc::schedule {

bool is_reduction(ir::OpKind start);

// Whether something may be put before the node without tearing a bucket or a tail apart: it is
// neither inside a bucket nor of a kind that tails consist of.
bool splits_no_tail(const ir::Node& node);

// The done halves of a bucket and the nodes right after them that stand on them: accumulation,
// scale, square sum, and a reduction across hosts with what stands on it. They stand side by side.
std::vector<ir::NodeId> reduction_tail(const Positions& axis,
                                       const std::vector<ir::NodeId>& bucket);

// Position of the first node in [begin, end), behind the tail, that reads a result of the tail or
// writes a buffer under way; `end` if none.
int32_t latest_tail(const Positions& axis, const std::vector<ir::NodeId>& bucket,
                    const std::vector<ir::NodeId>& tail, int32_t end, int32_t begin = 0);

}  // namespace dc::schedule
