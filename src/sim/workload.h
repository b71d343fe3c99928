// Workload: what one program has to do, whatever its order. The events of a schedule, what each
// reads and writes, and how many bytes that takes; a step of the IR and a plan both feed it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "src/sim/schedule.h"

namespace dc::sim {

// A storage is a transient or a state entry. Views share one.
struct Storage {
  base::Bytes bytes;        // of a transient, alignment included; 0: state
  bool from_start = false;  // holds data before the first event
};

// A transfer counts at its start. `part` tells ranges of one storage apart that have no common
// origin (this rank's range and the whole): they are taken to overlap.
struct Access {
  int32_t event = -1, storage = -1, part = 0;
  int64_t first = 0, last = 0;  // bytes [first, last)
  bool writes = false;
};

struct EventTraits {
  base::Bytes scratch;
  // A kernel of forward or backward that no pass puts into another order: neither one that travels
  // with a collective nor one of the update.
  bool keeps_order = false;
  bool is_barrier = false;  // waits for all gradients, for the norm
};

struct Workload {
  Schedule schedule;
  std::vector<EventTraits> traits;  // by event
  std::vector<Storage> storages;
  std::vector<Access> accesses;  // by event
};

// Casts, accumulations, scales and square sums go where the collective next to them goes.
bool travels_with_collective(ir::OpKind kind);

// What says how a kernel uses the step's small tensors: its operator and two of its attributes.
struct CellUse {
  ir::OpKind kind = ir::OpKind::Aten;
  std::optional<int64_t> param;
  bool clips = false;
};
CellUse cell_use(const ir::Node& node);
// The one cell that a kernel touches of operand `operand`, where it touches no more of it: square
// sums and permissions of single parameters; -1: any.
int64_t only_cell(const CellUse& use, size_t operand);

// The step must be scheduled.
Workload workload_of(const ir::Step& step, const ir::Graph& graph, const cost::CostModel& cost);

// Which events must have ended before each one may begin: `before` of event e is
// before[first[e]] ... before[first[e + 1] - 1]. Only reading, writing and storages count; dones
// have none and appear nowhere, because their transfers do. Transfers that leave the step running
// have neither: over many steps they only take their share of a stream and a link.
struct Precedence {
  std::vector<int32_t> first, before;
};
Precedence precedence(const Workload& workload);

}  // namespace dc::sim
