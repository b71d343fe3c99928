#include "runtime/device/cuda/cuda_fills.h"

#include <algorithm>
#include <vector>

#include "runtime/device/cuda/fill_words.h"

namespace dc::runtime::device {
namespace {

using cuda::Driver;
using cuda::GraphNode;

constexpr unsigned kWord = sizeof(unsigned), kThreads = 256, kMostBlocks = 1024;

// The nodes that a call of the driver lists, which first says how many; nothing if it fails, as it
// does for edges that say more than that one node follows the other.
template <typename List>
bool all_nodes(std::vector<GraphNode>& nodes, const List& list) {
  size_t count = 0;
  if (list(nullptr, &count) != cuda::kSuccess) return false;
  nodes.resize(count);
  return count == 0 || list(nodes.data(), &count) == cuda::kSuccess;
}

bool fills_words(const cuda::MemsetNode& fill) {
  return fill.height == 1 && fill.to % kWord == 0 && fill.width * fill.element_bytes % kWord == 0;
}

unsigned repeated(const cuda::MemsetNode& fill) {
  switch (fill.element_bytes) {
    case 1:
      return (fill.value & 0xFFU) * 0x01010101U;
    case 2:
      return (fill.value & 0xFFFFU) * 0x00010001U;
    default:
      return fill.value;
  }
}

int replace(const Driver& driver, cuda::GraphHandle graph, GraphNode node, cuda::Function kernel) {
  cuda::MemsetNode fill{};
  std::vector<GraphNode> before, after;
  const bool is_known = driver.memset_parameters(node, &fill) == cuda::kSuccess &&
                        fills_words(fill) &&
                        all_nodes(before,
                                  [&](GraphNode* to, size_t* n) {
                                    return driver.node_dependencies(node, to, nullptr, n);
                                  }) &&
                        all_nodes(after, [&](GraphNode* to, size_t* n) {
                          return driver.node_dependents(node, to, nullptr, n);
                        });
  if (!is_known) return cuda::kSuccess;
  cuda::FillWords parameters{reinterpret_cast<unsigned*>(cuda::pointer_to(fill.to)),
                             fill.width * fill.element_bytes / kWord, repeated(fill)};
  void* all[] = {&parameters};
  const auto blocks = static_cast<unsigned>(
      std::min<unsigned long long>((parameters.count + kThreads - 1) / kThreads, kMostBlocks));
  const cuda::KernelNode made{
      kernel, std::max(blocks, 1U), 1, 1, kThreads, 1, 1, 0, all, nullptr, nullptr, nullptr};
  GraphNode in_its_place = nullptr;
  int failed = driver.add_kernel_node(&in_its_place, graph, before.data(), before.size(), &made);
  if (failed != cuda::kSuccess) return failed;
  const std::vector<GraphNode> from(after.size(), in_its_place);
  if (!after.empty())
    failed = driver.add_dependencies(graph, from.data(), after.data(), nullptr, after.size());
  return failed != cuda::kSuccess ? failed : driver.destroy_node(node);
}

}  // namespace

int put_kernels_for_fills(const Driver& driver, cuda::GraphHandle graph, cuda::Function kernel) {
  std::vector<GraphNode> nodes;
  if (!driver.edits_graphs() ||
      !all_nodes(nodes, [&](GraphNode* to, size_t* n) { return driver.graph_nodes(graph, to, n); }))
    return cuda::kSuccess;
  for (const GraphNode node : nodes) {
    int type = 0;
    if (driver.node_type(node, &type) != cuda::kSuccess || type != cuda::kMemset) continue;
    if (const int failed = replace(driver, graph, node, kernel); failed != cuda::kSuccess)
      return failed;
  }
  return cuda::kSuccess;
}

}  // namespace dc::runtime::device
