// LiveCurve: bytes at each position, changed over ranges, with the most of all at hand.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
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
    if (first > last || bytes == 0) return;
    size_t low = leaves_ + static_cast<size_t>(first), high = leaves_ + static_cast<size_t>(last);
    // Level by level: the nodes whose positions are all in the range, and whose parents' are not;
    // then what is above the ends of the range, until nothing changes any more.
    for (size_t from = low, end = high + 1;;) {
      if (from < end) {
        if (from % 2 == 1) nodes_[from++].add(bytes);
        if (end % 2 == 1) nodes_[--end].add(bytes);
      }
      from /= 2, end /= 2, low /= 2, high /= 2;
      if (low == 0) return;
      bool changes = sum_up(low);
      if (high != low) changes = sum_up(high) || changes;
      if (!changes && from >= end) return;
    }
  }
  // Of all positions; at least 0.
  int64_t most() const { return nodes_[1].most; }

 private:
  struct Node {
    int64_t added = 0, most = 0;
    void add(int64_t bytes) {
      added += bytes;
      most += bytes;
    }
  };

  // Whether the most of its positions changes.
  bool sum_up(size_t index) {
    Node& node = nodes_[index];
    const int64_t most = node.added + std::max(nodes_[2 * index].most, nodes_[2 * index + 1].most);
    return std::exchange(node.most, most) != most;
  }

  size_t leaves_ = 1;
  std::vector<Node> nodes_;  // the children of node i are 2 i and 2 i + 1
};

}  // namespace dc::schedule
