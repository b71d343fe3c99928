// ScheduleView: one program as its streams run it: what each node is to a stream, when compute
// knows that it has ended, and what the nodes of other streams wait for.
//
// The executor's rules. A stream runs its nodes in program order; stream 0 is compute. A node of
// another stream begins once compute has come to its place, so it follows all of compute before it.
// Beyond that only waits order streams: a done waits for its start, and the waits listed here for
// kernels outside compute.
//
// Liveness, passes, the simulator and the emitter ask this one. The verifiers of steps
// (src/ir/verify_schedule.cpp) and of plans (runtime/verify) do not: they check what it assumes.
#pragma once

#include <cstdint>
#include <vector>

#include "src/ir/step.h"

namespace dc::analysis {

// What a node is to the stream that it is on. Views, inputs, state and releases run nothing.
// Arrival: compute waits for what the last run of the step started.
enum class Part : uint8_t { Nothing, Kernel, Start, Done, Arrival };
Part part_of(const ir::Node& node);
// Compute's, for what runs nothing and for waits, whatever stream the node names.
int stream_of(const ir::Node& node);

// `waiter` begins when `awaited`, a kernel of another stream and not of compute, has ended.
// Positions.
struct Wait {
  int32_t waiter = 0, awaited = 0;
  bool operator==(const Wait&) const = default;
};

// A position is a node's index in program order.
struct ScheduleView {
  std::vector<ir::NodeId> order;  // position -> node
  std::vector<int32_t> position;  // node id -> position, -1 if erased
  // By position: from where on compute's nodes follow the end of the node. A start: its done. A
  // kernel of another stream: the first node of compute that waits for it, or for what waited for
  // it. The last position if nothing does; else the position itself.
  std::vector<int32_t> known;
  // By waiter, ascending: what the order of streams, dones and other waits do not give already, so
  // that no node begins before the ends of those that it depends on (dependences.h).
  std::vector<Wait> waits;
};

ScheduleView schedule_view(const ir::Step& step, const ir::Graph& graph);

}  // namespace dc::analysis
