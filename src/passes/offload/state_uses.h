// Who touches state entries, and how, as passes that move them ask.
#pragma once

#include <cstdint>
#include <vector>

#include "src/schedule/memory_pressure.h"

namespace dc::passes {

// A read, or an update in place; a transfer that has started reads until it is done.
struct StateUse {
  int32_t first = 0, last = 0;
  bool writes = false;
};

// A node that fills the whole entry, or this rank's range of it, with `value`: a copy, or an update
// that rounds what it changes, where the value is invalid until separate_copies() makes it. It is
// there from `ready` on.
struct Overwrite {
  ir::NodeId node;
  ir::ValueId value;
  int32_t ready = 0;
};

// A gather into the whole entry. `elided`: what fills the range it gathers from, if nothing else
// reads that; its node is invalid if there is none.
struct Refill {
  ir::NodeId start, done;
  Overwrite elided;
  int32_t first = 0, last = 0;
};

// One state value of one program.
struct StateRoot {
  int program = 0;
  ir::ValueId value;
  int entry = -1, owner = -1;  // as the node names it; whose storage it is
  std::vector<StateUse> uses;  // in program order
  std::vector<Overwrite> overwrites;
  std::vector<Refill> refills;
};

struct StateUses {
  std::vector<StateRoot> roots;
  std::vector<bool> is_known;  // by entry that owns storage: every use is one of the above
};

StateUses find_state_uses(const ir::Step& step, const schedule::MemoryPressure& pressure);

// Makes the values of updates that fill the entry.
void separate_copies(ir::Step& step, StateRoot& root);
// Called when copies out write the new values of an entry: erases the nodes that filled the entry
// on the device. A gather into the entry becomes a gather into a new value.
void drop_fillers(ir::Graph& graph, const StateRoot& root);

}  // namespace dc::passes
