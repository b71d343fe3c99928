// Timeline: what one choice of kept storages means. Which kernels run again and where, which
// gathers move or are added, how many bytes live at each coordinate, and the time it costs.
#pragma once

#include <utility>
#include <vector>

#include "src/passes/recompute/recompute_program.h"

namespace dc::passes {

// By storage: true if the forward phase's bytes serve every reader. What is not kept is made again
// once, right before the first node that needs it.
using KeptStorages = std::vector<uint8_t>;

KeptStorages keep_everything(const RecomputeProgram& program);
// Inside blocks only what another block, or a node outside, reads in the forward phase is kept.
KeptStorages keep_block_inputs(const RecomputeProgram& program);

// Where a kernel at `place` (a position) reads a gathered parameter.
struct GatherRead {
  int32_t copy = -1;   // index into GatheredParameter::copies; -1: another copy
  bool moves = false;  // the copy would come later and starts here instead
};
GatherRead gather_read(const GatheredParameter& gather, int32_t place);

struct Timeline {
  // By forward position: before which node the kernel runs again, kNever; and whether its first run
  // is dropped, because its result has no reader.
  std::vector<int32_t> place;
  std::vector<uint8_t> only_again;
  // Forward positions whose kernels run again, in the new order.
  std::vector<int32_t> again;
  // By storage: place of the first kernel run again that reads it; coordinates of the last use of
  // what the forward phase made and of what is made again, -1 without one.
  std::vector<int32_t> readers, until, again_until;
  std::vector<int32_t> moved;                    // by number of copy: place of its start; kNever
  std::vector<std::pair<int32_t, int32_t>> own;  // (gather, place) of added gathers
  std::vector<int64_t> bytes;                    // by coordinate; an estimate where nothing runs
  int64_t peak = 0;
  int32_t peak_at = 0;        // coordinate, the first of several
  base::Nanos time;           // of kernels run twice and added gathers
  int32_t too_late = kNever;  // kernel run again after its input changed; then the rest is invalid
};

Timeline evaluate(const RecomputeProgram& program, const KeptStorages& kept);

// Keeps what cannot be made again in time, until nothing reads too late.
Timeline settle(const RecomputeProgram& program, KeptStorages& kept);

}  // namespace dc::passes
