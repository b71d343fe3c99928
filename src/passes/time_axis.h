// TimeAxis: the positions of one program with the time and the bytes at each, as passes that move
// collectives need them.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "src/analysis/live_bytes.h"
#include "src/cost/cost_model.h"
#include "src/ir/step.h"
#include "src/passes/pass.h"
#include "src/passes/touches.h"

namespace dc::passes {

struct TimeAxis {
  TimeAxis(const ir::Step& step, const ir::Graph& graph, const cost::CostModel& cost);

  int32_t position(ir::NodeId node) const { return live.position[node.index()]; }
  const ir::Node& node(int32_t position) const {
    return graph.node(live.order[static_cast<size_t>(position)]);
  }
  // Time of compute alone before `position`, which may be the end of the program. The small kernels
  // that travel with a collective (casts, accumulations, scales, square sums) count as nothing, so
  // that moving some leaves the places of the others as they were.
  base::Nanos time_before(int32_t position) const { return at[static_cast<size_t>(position)]; }
  // True if the node writes the storage in place.
  bool writes(const ir::Node& node, int64_t storage) const;
  // The last position before `position` where a node writes the storage of `value` in place, or
  // reads or writes it; -1 if there is none.
  int32_t last_write(ir::ValueId value, int32_t position) const;
  int32_t last_touch(ir::ValueId value, int32_t position) const;
  int64_t storage_key(ir::ValueId value) const { return passes::storage_key(storages, value); }
  // From the first node of the backward phase to the one after its last; without one, both are the
  // end of the program.
  struct Phase {
    int32_t begin = 0, end = 0;
  };
  Phase backward() const;

  const ir::Graph& graph;
  analysis::StorageMap storages;
  analysis::Liveness live;
  std::vector<base::Nanos> at;  // one more than there are nodes
  std::vector<int64_t> bytes;   // of transients and scratch on the device at each position
  Touches touches;
};

using analysis::aligned_bytes;
// Bytes that transients may take: what the state leaves of the budget, less one part in 33, because
// a layout may need up to 3 % more than the largest live sum. Empty: no budget.
std::optional<int64_t> transient_limit(const ir::Step& step,
                                       const std::optional<base::Bytes>& budget);

// Moves collectives in one graph and returns how many moved. `limit`: bytes that transients may
// take under the budget; empty: no budget.
using MoveInGraph = std::function<int(ir::Graph&, std::optional<int64_t> limit)>;

// What a move does to collectives, as remarks say it.
struct Movement {
  std::string_view code, text;
  bool gathers = false, reductions = false;  // of which it speaks
};
inline constexpr Movement kGathersEarlier{"gathers-earlier", "gathers start earlier", true, false};
inline constexpr Movement kGathersJoined{"gathers-joined", "gathers join the one before them", true,
                                         false};
inline constexpr Movement kReductionsJoined{"reductions-joined",
                                            "reductions join the one before them", false, true};
inline constexpr Movement kReductionsOverlapped{"reductions-overlapped",
                                                "reductions run beside compute", false, true};
inline constexpr Movement kByBlock{"collectives-by-block", "collectives go by block", true, true};
inline constexpr Movement kNodesMoved{"nodes-moved", "nodes change places"};

// Runs `move` on every program; a remark of `pass` says how many moved, what that means, and the
// exposed communication before and after.
Change move_collectives(ir::Step& step, PassContext& context, std::string_view pass,
                        const Movement& what, const MoveInGraph& move);

}  // namespace dc::passes
