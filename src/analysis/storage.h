// Whose bytes a value is: follows views, the done halves of collectives and in-place updates back
// to the value, or state entry, that owns the storage.
#pragma once

#include <string>
#include <vector>

#include "src/base/units.h"
#include "src/ir/graph.h"
#include "src/ir/step.h"

namespace dc::analysis {

// The values and state entries that own storage, for one graph. A snapshot: editing the graph makes
// it stale.
class StorageMap {
 public:
  StorageMap(const ir::Step& step, const ir::Graph& graph);

  // The value that owns the storage: the result of a fresh op, or of a `state` node.
  ir::ValueId root(ir::ValueId value) const { return root_[value.index()]; }
  // Index into Step::state of the entry that owns the storage (never one with `range_of`), -1 for
  // transients.
  int owner(ir::ValueId value) const { return owner_[root(value).index()]; }
  // Index of the entry that a `state` node names, as written there (possibly one with `range_of`);
  // -1 for other values.
  int entry(ir::ValueId value) const { return entry_[root(value).index()]; }

 private:
  std::vector<ir::ValueId> root_;
  std::vector<int> owner_, entry_;  // by root
};

// Equal for values that share bytes: negative for state.
inline int64_t storage_key(const StorageMap& storages, ir::ValueId value) {
  const int owner = storages.owner(value);
  return owner >= 0 ? -1 - owner : storages.root(value).v;
}

// Index into Step::state that a `state` node names; -1 if there is no such entry.
int state_entry_of(const ir::Step& step, const ir::Node& node);

// Name of the graph input that an `input` node stands for.
std::string input_name(const ir::Node& node);

// Bytes reserved for a state entry; 0 for one with `range_of`.
base::Bytes state_bytes(const ir::StateEntry& entry);

}  // namespace dc::analysis
