#include "src/bound/spine.h"

#include <algorithm>

namespace dc::bound {

using ir::Node;
using ir::NodeId;

Spine::Spine(const ir::Graph& graph, const std::vector<double>& bytes, int32_t most)
    : index_(graph.node_capacity(), -1),
      after_(graph.node_capacity()),
      before_(graph.node_capacity(), -1) {
  find_path(graph, bytes, most);
  for (int32_t i = 0; i < count(); ++i) index_[kernels_[static_cast<size_t>(i)].index()] = i;
  for (NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    int32_t& last = before_[id.index()];
    for (const ir::ValueId operand : graph.node(id).operands) {
      const NodeId maker = graph.value(operand).producer;
      last = std::max({last, before_[maker.index()], index(maker)});
    }
  }
  for (NodeId id = graph.last(); id.valid(); id = graph.previous(id)) {
    int32_t& first = after_[id.index()];
    first = count();
    for (const ir::ValueId result : graph.node(id).results) {
      if (!result.valid()) continue;
      for (const ir::Use& use : graph.value(result).uses) {
        first = std::min(first, after_[use.node.index()]);
        if (index(use.node) >= 0) first = std::min(first, index(use.node));
      }
    }
  }
}

void Spine::find_path(const ir::Graph& graph, const std::vector<double>& bytes, int32_t most) {
  std::vector<double> sum(graph.node_capacity());
  std::vector<NodeId> previous(graph.node_capacity());
  NodeId end;
  for (NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    const Node& node = graph.node(id);
    const size_t here = id.index();
    for (const ir::ValueId operand : node.operands) {
      const NodeId maker = graph.value(operand).producer;
      if (sum[maker.index()] <= sum[here]) continue;
      sum[here] = sum[maker.index()];
      previous[here] = maker;
    }
    sum[here] += bytes[here];
    if (!end.valid() || sum[here] > sum[end.index()]) end = id;
  }
  std::vector<NodeId> path;
  for (NodeId id = end; id.valid(); id = previous[id.index()]) {
    if (bytes[id.index()] > 0) path.push_back(id);
  }
  std::reverse(path.begin(), path.end());
  if (most == 0) return;
  // Of each stretch of the path the kernel that touches most.
  const size_t stretch = (path.size() + static_cast<size_t>(most) - 1) / static_cast<size_t>(most);
  for (size_t at = 0; at < path.size(); at += stretch) {
    const auto begin = path.begin() + static_cast<std::ptrdiff_t>(at);
    const auto stop =
        path.begin() + static_cast<std::ptrdiff_t>(std::min(at + stretch, path.size()));
    kernels_.push_back(*std::max_element(
        begin, stop, [&](NodeId a, NodeId b) { return bytes[a.index()] < bytes[b.index()]; }));
  }
}

}  // namespace dc::bound
