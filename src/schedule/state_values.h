// State entries and the nodes that read them.
#pragma once

#include <array>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/ir/step.h"

namespace dc::schedule {

// The value of a state entry in a graph: its state node, added at the front if the graph does not
// read the entry yet.
ir::ValueId state_value(ir::Step& step, ir::Graph& graph, int entry);

// The same for passes that ask for many entries of one graph. While it lives, the first node behind
// the state nodes and inputs at the front stays where it is.
class StateValues {
 public:
  StateValues(const ir::Step& step, ir::Graph& graph);
  ir::ValueId of(int entry);

 private:
  const ir::Step& step_;
  ir::Graph& graph_;
  std::unordered_map<ir::StateId, ir::ValueId> known_;  // only looked up, never iterated
  ir::NodeId behind_;
};

// Entries by what they are, found once; entries that are added later are not in it.
class StateIndex {
 public:
  explicit StateIndex(const ir::Step& step);
  // Of a parameter, or of none (-1). The whole entry, where ranges of it are entries too; -1: there
  // is none.
  int of(int parameter, ir::StateRole role) const;

 private:
  using ByRole = std::array<int, base::enum_count<ir::StateRole>()>;
  ByRole own_;  // of no parameter
  std::vector<ByRole> by_parameter_;
};
// This rank's range of an entry; -1 if there is none. Walks all entries.
int range_of(const ir::Step& step, int entry);

// Adds an entry and returns its index. The name must be new.
int add_entry(ir::Step& step, ir::StateEntry entry);
int rng_entry(ir::Step& step);  // the counters of random ops, added on first use

std::string loss_scale_name(
    const ir::Step& step);  // name of the loss_scale input, empty if there is none
int trainable_count(const ir::Step& step);
// By parameter: its position among the trainable ones, -1 if it is frozen.
std::vector<int> trainable_indices(const ir::Step& step);

}  // namespace dc::schedule
