#include "src/analysis/storage.h"

#include <algorithm>
#include <string>

#include "src/ir/effects.h"

namespace dc::analysis {

using ir::OpKind;
using ir::ValueId;

int state_entry_of(const ir::Step& step, const ir::Node& node) {
  const ir::StateId entry = ir::entry_of(node);
  return entry.valid() && entry.index() < step.state.size() ? entry.v : -1;
}

StorageMap::StorageMap(const ir::Step& step, const ir::Graph& graph)
    : root_(graph.value_capacity()),
      owner_(graph.value_capacity(), -1),
      entry_(graph.value_capacity(), -1) {
  for (size_t i = 0; i < root_.size(); ++i) root_[i].v = static_cast<int32_t>(i);
  for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    const ir::Node& node = graph.node(id);
    if (ir::is_view(node) && !node.operands.empty()) {
      for (ValueId result : node.results) {
        if (result.valid()) root_[result.index()] = root_[node.operands[0].index()];
      }
    }
    if (node.kind != OpKind::State || node.results.empty()) continue;
    const int entry = state_entry_of(step, node);
    if (entry < 0) continue;
    size_t result = node.results[0].index();
    int range_of = step.state[static_cast<size_t>(entry)].range_of;
    entry_[result] = entry;
    owner_[result] = range_of >= 0 ? range_of : entry;
  }
}

std::string input_name(const ir::Node& node) {
  const ir::Arg* arg = node.find(ir::Attr::Name);
  const auto* name = arg == nullptr ? nullptr : std::get_if<std::string>(&arg->value);
  return name == nullptr ? "" : *name;
}

base::Bytes state_bytes(const ir::StateEntry& entry) {
  if (entry.range_of >= 0) return {0};
  int64_t elements = std::max(entry.storage_elements, entry.type.storage_elements());
  return {elements * base::byte_size(entry.type.dtype)};
}

}  // namespace dc::analysis
