// Which storages of the forward phase are kept until the backward phase, so that the live bytes
// stay below a limit and little time is spent on making the others again.
//
// Greedy with re-evaluation, in the manner of XLA's HloRematerialization; that only what crosses
// into the backward phase is a candidate, and that an operand may be saved in place of what is made
// of it, is the cut of PyTorch's partitioner. (Checkmate, arXiv 1910.02653, solves the same choice
// exactly, as an integer program.)
//
// Round after round, at the index where most bytes live, the storages are dropped that free most
// bytes times indices above the limit per nanosecond of kernels run again. A kernel whose own
// operands are gone brings the kernels before it along, or keeps a smaller operand instead,
// whichever frees more per time. After each round the whole program is evaluated anew; a round that
// does not help is taken back. In the end what turned out unnecessary is kept again, dearest first.
//
// The same from the other side, starting with only block inputs kept (Chen et al., arXiv
// 1604.06174); the cheaper of the two that fit wins, or the lower one if neither fits. If neither
// fits, gains are counted above half the limit, then everywhere. A round costs O(nodes); there are
// tens of them.
#pragma once

#include "src/passes/recompute/recompute_timeline.h"

namespace dc::passes {

struct RecomputeChoice {
  KeptStorages kept;
  Timeline timeline;
  bool fits = false;
};

// `limit`: bytes that transients and scratch may take together; 0 frees as much as possible.
RecomputeChoice choose(const RecomputeProgram& program, int64_t limit);

}  // namespace dc::passes
