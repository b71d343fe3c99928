// Traffic and time of a step, from its nodes: what rank 0 sends, and how long everything takes one
// after the other.
#pragma once

#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "runtime/plan/plan.h"
#include "src/cost/cost_model.h"
#include "src/ir/step.h"

namespace dc::plan {

// Bytes that `rank` sends per step, by runtime::plan::CollectiveKind, repeats included, as a direct
// algorithm counts them: an all-gather sends the rank's own valid elements to every other rank, a
// reduce-scatter sends every other rank its range, an all-reduce does both, the second half in f32.
// Rank 0 owns a whole shard wherever one exists; the last ranks own less, so they send less in
// gathers and more in reductions.
std::vector<int64_t> wire_bytes(const ir::Step& step, int rank = 0);

// Bytes that one rank copies per step between memory spaces, repeats included.
struct CopiedBytes {
  int64_t out = 0, in = 0;  // from the device, to the device
};
CopiedBytes copied_bytes(const ir::Step& step);

// Serial times per step, repeats included; by cost::Source, how much of it and how many figures.
struct SerialTime {
  base::Nanos compute, communication, copies;
  base::Nanos on_host;  // kernels
  std::array<base::Nanos, cost::kSources> by_source;
  std::array<int, cost::kSources> counts{};
  int count(cost::Source source) const { return counts[static_cast<size_t>(source)]; }
  int figures() const { return std::accumulate(counts.begin(), counts.end(), 0); }
};
SerialTime serial_time(const ir::Step& step, const cost::CostModel& cost);

// What a node takes alone, and whose time that is. Nothing for what takes none, and for what
// travels with another.
struct NodeFigure {
  cost::Estimate estimate;
  base::Nanos SerialTime::*part;
};
std::optional<NodeFigure> figure_of(const ir::Step& step, const ir::Graph& graph,
                                    const ir::Node& node, const cost::CostModel& cost);

}  // namespace dc::plan
