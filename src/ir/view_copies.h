// ViewCopies: chains of views made again over other bytes, each view once.
#pragma once

#include <optional>
#include <unordered_map>

#include "src/ir/graph.h"

namespace dc::ir {

class ViewCopies {
 public:
  // `base` stands for whatever a chain begins with; an invalid id: only what stand_for() says.
  explicit ViewCopies(Graph& graph, ValueId base = {}) : graph_(&graph), base_(base) {}

  void stand_for(ValueId original, ValueId copy) { known_[original.v] = copy; }
  // What `value` is of the other bytes. Views that are missing are made before `before`.
  ValueId of(ValueId value, NodeId before);
  // The same in another phase, each view right after what it looks at.
  ValueId of_in(ValueId value, Phase phase);

 private:
  struct Place {
    NodeId before;
    std::optional<Phase> phase;  // empty: before `before`, of the view's own origin
  };
  ValueId copy(ValueId value, const Place& place);

  Graph* graph_;
  ValueId base_;
  std::unordered_map<int32_t, ValueId> known_;  // by original; only looked up
};

}  // namespace dc::ir
