// What the pass recompute knows of one program: the transient storages that the forward phase
// makes, the kernels that can make them again, and the gathers these read.
//
// The forward phase is everything before the boundary, the first node of the backward phase.
// Positions are indices in program order. Where something happens between two nodes, coordinates
// tell: node t runs at 2t + 1, and what is made again right before it at 2t.
#pragma once

#include <limits>
#include <vector>

#include "src/analysis/blocks.h"
#include "src/analysis/liveness.h"
#include "src/base/small_list.h"
#include "src/cost/cost_model.h"
#include "src/ir/step.h"

namespace dc::passes {

inline constexpr int32_t kNever = std::numeric_limits<int32_t>::max();

// table[index] for the int32_t indices of this folder: positions, and indices into other tables.
template <typename T>
T& at(std::vector<T>& table, int32_t index) {
  return table[static_cast<size_t>(index)];
}
template <typename T>
const T& at(const std::vector<T>& table, int32_t index) {
  return table[static_cast<size_t>(index)];
}

// Bytes that a node before the boundary makes, seen through views.
struct ForwardStorage {
  ir::ValueId root;
  int32_t producer = 0;             // position
  int32_t last_forward = 0;         // last use before the boundary, or the producer
  int32_t first_backward = kNever;  // first node from the boundary on that reads the bytes
  int32_t last = 0;                 // last use
  int64_t bytes = 0;                // aligned
  bool recomputable = false;
  bool saved() const { return first_backward != kNever; }
};

struct ForwardNode {
  base::Nanos time;
  bool read_forward = false;      // a forward kernel reads a result
  int32_t block = -1;             // as analysis::blocks numbers them
  int32_t frozen_until = kNever;  // the first later node that changes what this one reads
  using Indices = base::SmallList<int32_t, 3>;
  Indices operands;  // storages, without repetition
  Indices gathers;   // indices into RecomputeProgram::gathers
  Indices results;   // storages
};

// One made-whole copy of a parameter.
struct GatheredCopy {
  ir::NodeId start, done;
  int32_t first = 0;  // position of the start, or of the cast before it
  int32_t ready = 0;  // of the done
  int32_t last = 0;   // of the release
};

// A parameter whose whole value forward kernels read, and all its copies in this program.
struct GatheredParameter {
  base::Nanos time;          // of one gather, with the cast before it
  int64_t bytes = 0;         // aligned
  int64_t narrow_bytes = 0;  // of the cast shard, aligned; 0 without a cast
  std::vector<GatheredCopy> copies;
  int32_t first_copy = 0;  // number of its first among the copies of all parameters
};

// What is live and is no storage of the forward phase.
struct OtherRange {
  int32_t first = 0, last = 0;  // positions
  int64_t bytes = 0;            // aligned
};

struct RecomputeProgram {
  RecomputeProgram(const ir::Step& step, const ir::Graph& graph, const cost::CostModel& cost);

  int32_t count() const { return static_cast<int32_t>(live.order.size()); }
  const ir::Node& node(int32_t position) const { return graph.node(at(live.order, position)); }
  const ForwardNode& forward(int32_t position) const { return at(nodes, position); }

  const ir::Graph& graph;
  analysis::StorageMap owners;
  analysis::Liveness live;
  int32_t boundary = 0;  // the end of the program if there is no backward phase
  std::vector<ForwardStorage> storages;
  std::vector<int32_t> storage_of;  // by root value, -1
  std::vector<int32_t> gather_of;   // by root value, -1
  std::vector<ForwardNode> nodes;   // by position, before the boundary
  std::vector<GatheredParameter> gathers;
  int32_t copy_count = 0;
  std::vector<OtherRange> others;
  std::vector<int32_t> slot;     // where to make again what the node at this position needs:
                                 // before the gathers and views right in front of it
  std::vector<int64_t> scratch;  // by position, aligned
};

}  // namespace dc::passes
