// What a collective, or a copy between memory spaces, moves, as its start node describes it.
#pragma once

#include <optional>
#include <vector>

#include "src/cost/cost_model.h"
#include "src/ir/step.h"

namespace dc::cost {

struct Transfer {
  Collective kind = Collective::AllGather;
  int64_t elements = 0, shard = 0;  // of the whole value, of one rank's range
  int64_t element_bytes = 0;        // on the wire
  ir::AxisMask group = ir::kAllAxes;

  base::Bytes bytes() const { return {elements * element_bytes}; }  // of the whole value
  // As CostModel::collective takes them.
  base::Bytes wire_bytes() const { return {base::wire_bytes(kind, elements, element_bytes)}; }
};

// Nothing if the node starts no collective.
std::optional<Transfer> transfer_of(const ir::Graph& graph, const ir::Node& node);

// Starts that travel as one collective (a bucket) stand side by side: all but the first have
// joins=1.
bool joins(const ir::Node& start);
std::vector<ir::NodeId> bucket_of(const ir::Graph& graph, ir::NodeId first);
// wire_bytes() of the whole bucket; `first` must start a collective and not join another.
base::Bytes bucket_bytes(const ir::Graph& graph, const ir::Node& first);
Estimate bucket_time(const ir::Step& step, const ir::Graph& graph, const ir::Node& first,
                     const CostModel& cost);
Group group_of(const ir::Step& step, const ir::Node& start);
// Bytes that the whole value takes in shards, padding included.
int64_t padded_bytes(const ir::Step& step, const Transfer& transfer);

struct SpaceCopy {
  base::Bytes bytes;
  ir::Space from = ir::Space::Device, to = ir::Space::Device;
};

// Nothing if the node starts no copy between spaces.
std::optional<SpaceCopy> space_copy_of(const ir::Step& step, const ir::Graph& graph,
                                       const ir::Node& node);

}  // namespace dc::cost
