// LiveCurve: bytes at each position, changed over ranges, with the most of all at hand.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace dc::schedule {

// A segment tree in which each node keeps what is added to all of its positions and the most of
// what lies below. Both calls cost O(log positions) or less.
class LiveCurve {
 public:
  explicit LiveCurve(size_t positions) {
    while (leaves_ < positions) leaves_ *= 2;
    nodes_.resize(2 * leaves_);
  }

  // At the positions from `first` to `last`, both included.
  void add(int32_t first, int32_t last, int64_t bytes) {
    if (first <= last && bytes != 0)
      add(1, 0, static_cast<int32_t>(leaves_) - 1, first, last, bytes);
  }
  // Of all positions; at least 0.
  int64_t most() const { return nodes_[1].most; }

 private:
  struct Node {
    int64_t added = 0, most = 0;
  };

  void add(size_t node, int32_t from, int32_t to, int32_t first, int32_t last, int64_t bytes) {
    if (first <= from && to <= last) {
      nodes_[node].added += bytes;
      nodes_[node].most += bytes;
      return;
    }
    const int32_t middle = from + (to - from) / 2;
    if (first <= middle) add(2 * node, from, middle, first, last, bytes);
    if (last > middle) add(2 * node + 1, middle + 1, to, first, last, bytes);
    nodes_[node].most =
        nodes_[node].added + std::max(nodes_[2 * node].most, nodes_[2 * node + 1].most);
  }

  size_t leaves_ = 1;
  std::vector<Node> nodes_;  // the children of node i are 2 i and 2 i + 1
};

}  // namespace dc::schedule
