// What passes that move gathers ask and do. A gather is the start of an all_gather, into state or
// not; where its shard travels in a smaller type, the cast just before it goes along.
#pragma once

#include <vector>

#include "src/schedule/time_axis.h"

namespace dc::schedule {

bool is_gather(ir::OpKind start);
ir::NodeId cast_of(const ir::Graph& graph, const ir::Node& start);  // invalid if there is none

// The first position where it may start, at most `position`: after the shard exists and after the
// last write to it; into state, after its last reader too.
int32_t earliest_start(const Positions& axis, const ir::Node& start, int32_t position);

// Bytes alive from the start on: the gathered value, unless it is state, and the cast shard.
int64_t gathered_bytes(const ir::Step& step, const ir::Graph& graph, const ir::Node& start);

// Puts the casts of a bucket and then its starts before `before` (invalid: the end); returns the
// first of them.
ir::NodeId move_gathers(ir::Graph& graph, const std::vector<ir::NodeId>& bucket, ir::NodeId before);

// To be called before a start goes: a bucket that loses its first start begins with the next one.
void leave_bucket(ir::Graph& graph, ir::NodeId start);

}  // namespace dc::schedule
