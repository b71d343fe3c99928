// The double's calls that look at and change what was captured, before it is instantiated.
#include <algorithm>
#include <memory>
#include <vector>

#include "runtime/device/cuda/driver.h"
#include "tests/double/gpu.h"

namespace {

using dc::gpu_double::Recording;
namespace cuda = dc::runtime::device::cuda;

constexpr int kInvalidValue = 1, kKernel = 0;

using Graph = std::shared_ptr<Recording>;
Recording& of(cuda::GraphHandle graph) { return **reinterpret_cast<Graph*>(graph); }

// A node is a piece of a recording; its handle lives to the end.
struct Node {
  Recording* graph;
  size_t place;
};
Node& of(cuda::GraphNode node) { return *reinterpret_cast<Node*>(node); }
Recording::Piece& piece(cuda::GraphNode node) { return of(node).graph->pieces[of(node).place]; }

cuda::GraphNode handle(Recording& graph, size_t place) {
  static std::mutex mutex;
  static auto* const all = new std::deque<Node>();
  const std::lock_guard lock(mutex);
  for (Node& node : *all)
    if (node.graph == &graph && node.place == place)
      return reinterpret_cast<cuda::GraphNode>(&node);
  return reinterpret_cast<cuda::GraphNode>(&all->emplace_back(Node{&graph, place}));
}

// As the driver lists: how many there are, or as many as there is room for.
int list(Recording& graph, const Recording::Places& places, cuda::GraphNode* nodes, size_t* count) {
  if (nodes == nullptr) {
    *count = places.size();
    return 0;
  }
  if (*count < places.size()) return kInvalidValue;
  *count = places.size();
  for (size_t i = 0; i < places.size(); ++i) nodes[i] = handle(graph, places[i]);
  return 0;
}

}  // namespace

extern "C" {

int cuLaunchKernel(cuda::Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   cuda::StreamHandle stream, void** parameters, void** extra);

int cuGraphGetNodes(cuda::GraphHandle graph, cuda::GraphNode* nodes, size_t* count) {
  DC_MAY_FAIL(cuGraphGetNodes);
  Recording::Places places;
  for (size_t i = 0; i < of(graph).pieces.size(); ++i)
    if (!of(graph).pieces[i].is_gone) places.push_back(i);
  return list(of(graph), places, nodes, count);
}
// What is no fill passes as a kernel.
int cuGraphNodeGetType(cuda::GraphNode node, int* type) {
  DC_MAY_FAIL(cuGraphNodeGetType);
  *type = piece(node).fill ? cuda::kMemset : kKernel;
  return 0;
}
int cuGraphMemsetNodeGetParams(cuda::GraphNode node, cuda::MemsetNode* parameters) {
  DC_MAY_FAIL(cuGraphMemsetNodeGetParams);
  const auto& fill = piece(node).fill;
  if (!fill) return kInvalidValue;
  *parameters = {fill->to, fill->bytes, fill->value, 1, fill->bytes, 1};
  return 0;
}
int cuGraphNodeGetDependencies_v2(cuda::GraphNode node, cuda::GraphNode* nodes, cuda::OpaqueEdge*,
                                  size_t* count) {
  DC_MAY_FAIL(cuGraphNodeGetDependencies);
  return list(*of(node).graph, piece(node).after, nodes, count);
}
int cuGraphNodeGetDependentNodes_v2(cuda::GraphNode node, cuda::GraphNode* nodes, cuda::OpaqueEdge*,
                                    size_t* count) {
  DC_MAY_FAIL(cuGraphNodeGetDependentNodes);
  Recording& graph = *of(node).graph;
  Recording::Places places;
  for (size_t i = 0; i < graph.pieces.size(); ++i)
    if (std::ranges::count(graph.pieces[i].after, of(node).place) > 0) places.push_back(i);
  return list(graph, places, nodes, count);
}
int cuGraphAddKernelNode_v2(cuda::GraphNode* node, cuda::GraphHandle graph,
                            const cuda::GraphNode* after, size_t count,
                            const cuda::KernelNode* parameters) {
  DC_MAY_FAIL(cuGraphAddKernelNode);
  dc::gpu_double::Stream captures;
  captures.captured.recording = *reinterpret_cast<Graph*>(graph);
  for (size_t i = 0; i < count; ++i) captures.captured.last.push_back(of(after[i]).place);
  const int failed = cuLaunchKernel(
      parameters->function, parameters->grid_x, parameters->grid_y, parameters->grid_z,
      parameters->block_x, parameters->block_y, parameters->block_z, parameters->shared_bytes,
      reinterpret_cast<cuda::StreamHandle>(&captures), parameters->parameters, nullptr);
  if (failed == 0) *node = handle(of(graph), captures.captured.last.front());
  return failed;
}
int cuGraphAddDependencies_v2(cuda::GraphHandle graph, const cuda::GraphNode* from,
                              const cuda::GraphNode* to, const cuda::OpaqueEdge*, size_t count) {
  DC_MAY_FAIL(cuGraphAddDependencies);
  for (size_t i = 0; i < count; ++i) {
    if (of(to[i]).graph != &of(graph) || of(from[i]).graph != &of(graph)) return kInvalidValue;
    piece(to[i]).after.push_back(of(from[i]).place);
  }
  return 0;
}
// Its edges go with it: what came after it no longer waits for what came before.
int cuGraphDestroyNode(cuda::GraphNode node) {
  DC_MAY_FAIL(cuGraphDestroyNode);
  for (Recording::Piece& other : of(node).graph->pieces) std::erase(other.after, of(node).place);
  piece(node) = {};
  piece(node).is_gone = true;
  return 0;
}

}  // extern "C"
