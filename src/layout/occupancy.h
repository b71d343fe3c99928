// Occupancy: which byte ranges are taken over which positions. Answers "the lowest offset free
// throughout [first, last]" without looking at every request: a segment tree over time whose nodes
// hold coalesced byte ranges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dc::layout {

// A set of bytes as sorted, disjoint, coalesced ranges.
class RangeSet {
 public:
  struct Range {
    int64_t begin, end;
  };
  void add(int64_t begin, int64_t end);
  void clear() { ranges_.clear(); }
  bool empty() const { return ranges_.empty(); }
  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  std::vector<Range> ranges_;
};

class Occupancy {
 public:
  // Positions 0 .. moments - 1. `sizes`: what requests will ask for; others are answered too.
  Occupancy(int32_t moments, std::span<const int64_t> sizes);
  // Lowest offset at which `bytes` fit in every position of [first, last]; does not take them.
  int64_t lowest_fit(int32_t first, int32_t last, int64_t bytes);
  void take(int32_t first, int32_t last, int64_t offset, int64_t bytes);
  // Nothing is taken any more. The memory of the sets stays, for the next layout of the same
  // requests.
  void clear();

 private:
  struct Cursor {
    const RangeSet* set;
    size_t next;  // first range that ends behind the candidate offset
  };
  // Where a search may begin: below `offset` nothing of a class' size fits next to what covers all
  // of a node's span. That stays true, as nothing is ever given back; it was exact at `moment`.
  struct Hint {
    int64_t offset = 0;
    int32_t moment = 0;
  };
  struct Node {
    size_t index = 1;
    int32_t low, high;
    bool holds(int32_t first, int32_t last) const { return low <= first && last <= high; }
  };

  int64_t begin_of_search(Node& node, int32_t first, int32_t last, int64_t bytes);
  int64_t advance(int64_t offset, int64_t bytes);
  void collect(Node node, int32_t first, int32_t last);
  void insert(Node node, int32_t first, int32_t last, int64_t begin, int64_t end);
  Node root() const { return {1, 0, width_ - 1}; }
  static Node left(const Node& node) {
    return {2 * node.index, node.low, node.low + (node.high - node.low) / 2};
  }
  static Node right(const Node& node) {
    return {2 * node.index + 1, node.low + (node.high - node.low) / 2 + 1, node.high};
  }

  int32_t width_ = 1;  // leaves, a power of two
  std::vector<RangeSet>
      covering_;  // per node: requests that cover the node's whole span, but not its parent's
  std::vector<RangeSet>
      touching_;  // per node: requests kept in `covering_` of this node or of one below it
  std::vector<int32_t> changed_;  // per node: when `covering_` last changed
  int32_t now_ = 0;               // requests taken
  std::vector<int64_t> classes_;  // the least size in each, ascending
  std::vector<Hint> hints_;       // by node (those of narrow spans have none) and class
  std::vector<Cursor> cursors_;   // of the query under way
};

}  // namespace dc::layout
