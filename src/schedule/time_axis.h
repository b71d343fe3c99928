// Positions of one program, what touches each storage, and the time and the bytes at each position,
// as passes that move collectives need them.
#pragma once

#include <optional>
#include <vector>

#include "src/analysis/live_bytes.h"
#include "src/cost/cost_model.h"
#include "src/ir/step.h"
#include "src/schedule/touches.h"

namespace dc::schedule {

// Without time and bytes, which take as long as all of this.
struct Positions {
  Positions(const ir::Step& step, const ir::Graph& graph);

  int32_t position(ir::NodeId node) const { return live.position[node.index()]; }
  const ir::Node& node(int32_t position) const {
    return graph.node(live.order[static_cast<size_t>(position)]);
  }
  // True if the node writes the storage in place.
  bool writes(const ir::Node& node, int64_t storage) const;
  // The last position before `position` where a node writes the storage of `value` in place, or
  // reads or writes it; -1 if there is none.
  int32_t last_write(ir::ValueId value, int32_t position) const;
  int32_t last_touch(ir::ValueId value, int32_t position) const;
  int64_t storage_key(ir::ValueId value) const { return analysis::storage_key(storages, value); }

  const ir::Graph& graph;
  analysis::StorageMap storages;
  analysis::Liveness live;
  Touches touches;
};

struct TimeAxis : Positions {
  TimeAxis(const ir::Step& step, const ir::Graph& graph, const cost::CostModel& cost);

  // Time of compute alone before `position`, which may be the end of the program. The small kernels
  // that travel with a collective (casts, accumulations, scales, square sums) count as nothing, so
  // that moving some leaves the places of the others as they were.
  base::Nanos time_before(int32_t position) const { return at[static_cast<size_t>(position)]; }
  // From the first node of the backward phase to the one after its last; without one, both are the
  // end of the program.
  struct Phase {
    int32_t begin = 0, end = 0;
  };
  Phase backward() const { return backward_; }

  std::vector<base::Nanos> at;  // one more than there are nodes
  std::vector<int64_t> bytes;   // transient_bytes()

 private:
  Phase find_backward() const;

  Phase backward_;
};

// Of transients and scratch on the device, by position.
std::vector<int64_t> transient_bytes(const ir::Graph& graph, const analysis::Liveness& live,
                                     const cost::CostModel& cost);

using analysis::aligned_bytes;

// How much may be live so that a layout keeps `bytes`: one of so many parts less, because it may
// need up to 3 % more than the largest live sum.
inline constexpr int64_t kLeftToLayout = 33;
inline int64_t live_limit(int64_t bytes) { return bytes / kLeftToLayout * (kLeftToLayout - 1); }
// Bytes that transients may take: live_limit() of what the state leaves of the budget. Empty: no
// budget.
std::optional<int64_t> transient_limit(const ir::Step& step,
                                       const std::optional<base::Bytes>& budget);

}  // namespace dc::schedule
