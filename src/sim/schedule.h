// Schedule: one program as the simulator sees it. Flat arrays of numbers, so that a step of the IR
// and a plan feed the same machine.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "src/base/units.h"
#include "src/cost/cost_model.h"
#include "src/ir/step.h"

namespace dc::sim {

// What compute does, in order. A start hands a transfer to its stream and takes no time itself; a
// done waits until that transfer has ended.
enum class EventKind : uint8_t { Compute, Start, Done };

struct Event {
  EventKind kind = EventKind::Compute;
  int32_t transfer = -1;  // Start, Done: index into Schedule::transfers
  int32_t origin = -1;    // id of the node, or index of the instruction, that it stands for
  base::Nanos time;       // Compute: alone
  bool operator==(const Event&) const = default;
};

// What transfers share: the link between ranks, or between hosts where the ranks inside one have
// another link; the ways from and to a rank's host memory; the link of the ranks of one host.
// None: a kernel.
enum class Link : uint8_t { Ranks, ToHost, FromHost, Inside, None };
inline constexpr int kLinks = 5;
inline bool carries_copies(Link link) { return link == Link::ToHost || link == Link::FromHost; }

// What another stream than compute runs: a collective or a copy between memory spaces, first
// `latency`, then `wire`, in which it uses its link; or a kernel, whose time is `latency`. Its
// stream begins it when it is started, the one before it has ended, and all of `after` have. On
// stream 0 it blocks compute.
struct Transfer {
  int32_t stream = 1;
  Link link = Link::Ranks;
  base::Nanos latency, wire;  // alone
  cost::Contention contention;
  std::vector<int32_t> after{};  // transfers of other streams, started before it

  base::Nanos time() const { return latency + wire; }
  bool operator==(const Transfer&) const = default;
};

// A transfer that the last program of a step starts and the first waits for.
struct Arrival {
  int32_t transfer = -1;  // in the first program's schedule; only dones name it, unless the first
                          // program is the last too
  int32_t started = -1;   // the same in the last program's schedule
  bool operator==(const Arrival&) const = default;
};

struct Schedule {
  int streams = 1;
  std::vector<Event> events;  // a transfer is started once, before its done, unless it arrives
  std::vector<Transfer> transfers;  // may hold more than the events start
  std::vector<Arrival> arrivals{};  // from the run before
  std::vector<int32_t> leaving{};   // transfers that are waited for in the next run of the step
};

// Events of one program of the step, by the cost model's figures. The step must be scheduled.
Schedule schedule_of(const ir::Step& step, const ir::Graph& graph, const cost::CostModel& cost);

// A collective, its time split into latency and wire; a copy between spaces. On stream 1.
Transfer transfer(const cost::CostModel& cost, cost::Collective kind, base::Bytes bytes,
                  cost::Group group);
Transfer transfer(const cost::CostModel& cost, base::Bytes bytes, ir::Space from, ir::Space to);
// A kernel of another stream than compute.
Transfer kernel_outside_compute(base::Nanos time, int32_t stream);

// What each resource has to do, every piece of work taken alone.
struct Loads {
  base::Nanos compute, communication;  // kernels of compute; transfers that use a link
  std::vector<base::Nanos> streams;    // stream 0: kernels, and transfers that block them
  std::array<base::Nanos, kLinks> links{};

  base::Nanos largest() const;  // of a stream or a link
  void add(const Schedule& schedule, const Event& event);
};
Loads loads_of(const Schedule& schedule);

// Longest time that one event may take, 13 days; longer ones are cut.
inline constexpr base::Nanos kLongest{int64_t{1} << 50};

}  // namespace dc::sim
