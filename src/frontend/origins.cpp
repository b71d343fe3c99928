// Phase and module of nodes without marks: forward is everything up to the last node that the loss
// or a buffer update needs; the module is that of a parameter the node reads.
#include <set>

#include "src/frontend/draft.h"

namespace dc::frontend {

void complete_origins(Draft& draft) {
  if (draft.unmarked.empty()) return;
  std::set<ir::NodeId> forward;
  std::vector<ir::ValueId> queue;
  for (const ir::Output& output : draft.graph.outputs) {
    if (output.kind != ir::OutputKind::Gradient) queue.push_back(output.value);
  }
  while (!queue.empty()) {
    const ir::Node& node = draft.graph.node(draft.graph.value(queue.back()).producer);
    queue.pop_back();
    if (!forward.insert(node.id).second) continue;
    queue.insert(queue.end(), node.operands.begin(), node.operands.end());
  }
  const ir::NodeId last = *forward.rbegin();  // ids are in program order here
  for (const ir::NodeId id : draft.unmarked) {
    ir::Node& node = draft.graph.edit(id);
    node.origin.phase = id <= last ? ir::Phase::Forward : ir::Phase::Backward;
    for (const ir::ValueId read : node.operands) {
      const ir::Node& source = draft.graph.node(draft.graph.value(read).producer);
      if (node.origin.module.empty() && source.kind == ir::OpKind::State) {
        node.origin.module = source.origin.module;
      }
    }
  }
}

}  // namespace dc::frontend
