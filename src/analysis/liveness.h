// Liveness: over which positions of a program each transient storage must keep its bytes, seen
// through aliases.
//
// A position is a node's index in program order. Ranges are inclusive. Rules beyond "from the
// producer to the last use of any alias": inputs live from position 0 (the loader fills them before
// the program starts); graph outputs live to the last position; what a node of another stream than
// compute reads or makes lives until compute knows of its end (ScheduleView::known): the operand of
// a start until its done, because a peer or a copy may still read it; a release counts as the last
// use of a gathered value.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "src/analysis/schedule_view.h"
#include "src/analysis/storage.h"
#include "src/base/units.h"
#include "src/ir/step.h"

namespace dc::analysis {

using base::SliceKind;

struct LiveRange {
  ir::ValueId value;  // owns the storage
  int32_t first = 0, last = 0;
  base::Bytes bytes;  // reach of the widest alias; gathered values padded to world * shard
  SliceKind kind = SliceKind::Activations;
  ir::Space space = ir::Space::Device;
};

struct Liveness : ScheduleView {
  std::vector<LiveRange> ranges;  // of transients, by first position, then value id
};

Liveness liveness(const ir::Step& step, const ir::Graph& graph, const StorageMap& storages);

}  // namespace dc::analysis
