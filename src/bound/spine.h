// Spine: kernels of one program that every allowed order runs in the same sequence, as instants at
// which to look at the memory.
//
// Allowed is every order that the imported graph allows: a kernel follows the makers of what it
// reads. What a pass runs again, it runs in addition. So along a path of the graph the sequence is
// certain, and a value whose maker comes before an instant on the path and whose reader comes after
// it must be there at that instant, or away, or made again.
#pragma once

#include <cstdint>
#include <vector>

#include "src/ir/graph.h"

namespace dc::bound {

class Spine {
 public:
  // The path with the largest sum of `bytes` (of a node; 0: it is no instant), thinned to at most
  // `most` kernels.
  Spine(const ir::Graph& graph, const std::vector<double>& bytes, int32_t most);

  const std::vector<ir::NodeId>& kernels() const { return kernels_; }
  int32_t count() const { return static_cast<int32_t>(kernels_.size()); }
  int32_t index(ir::NodeId node) const { return index_[node.index()]; }  // -1: not on it

  // The first instant that must come after `node`, count() if none; the last one that must come
  // before it, -1 if none. Never the node itself.
  int32_t first_after(ir::NodeId node) const { return after_[node.index()]; }
  int32_t last_before(ir::NodeId node) const { return before_[node.index()]; }

 private:
  void find_path(const ir::Graph& graph, const std::vector<double>& bytes, int32_t most);

  std::vector<ir::NodeId> kernels_;
  std::vector<int32_t> index_, after_, before_;  // by node
};

}  // namespace dc::bound
