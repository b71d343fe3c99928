// Occupancy: which byte ranges are taken over which positions. Answers "the lowest offset free
// throughout [first, last]" without looking at every request: a segment tree over time whose nodes
// hold coalesced byte ranges. Nodes have eight children: most requests are short, so the way from
// the root counts.
#pragma once

#include <algorithm>
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

// Positions, both inclusive.
struct Span {
  int32_t first, last;
};

class Occupancy {
 public:
  // Positions 0 .. moments - 1. `sizes`: what requests will ask for; others are answered too.
  Occupancy(int32_t moments, std::span<const int64_t> sizes);
  // `spans`: of all requests until clear(), in any order: each is asked for once, then taken. What
  // none of them is left to ask for is not kept.
  Occupancy(int32_t moments, std::span<const int64_t> sizes, std::span<const Span> spans);
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
  // `level`: how often positions are grouped; 0 is one position. `index`: from the first of its
  // level on.
  struct Node {
    int level;
    int32_t index;
  };

  int64_t begin_of_search(Node& node, int32_t first, int32_t last, int64_t bytes);
  int64_t advance(int64_t offset, int64_t bytes);
  void collect(Node node, int32_t first, int32_t last);
  void collect_below(Node node, int32_t first, int32_t last);
  void expect(Node node, const Span& span);
  void insert(Node node, int32_t first, int32_t last, int64_t begin, int64_t end);
  Node root() const { return {levels_ - 1, 0}; }
  static int32_t low_of(const Node& node) { return node.index << (kBits * node.level); }
  static int32_t high_of(const Node& node) { return low_of({node.level, node.index + 1}) - 1; }
  // Those that hold positions of the range, by index.
  struct Children {
    int32_t first, last;
  };
  static Children children_in(const Node& node, int32_t first, int32_t last) {
    const int shift = kBits * (node.level - 1);
    return {std::max(first, low_of(node)) >> shift, std::min(last, high_of(node)) >> shift};
  }
  size_t id(const Node& node) const {
    return level_begin_[static_cast<size_t>(node.level)] + static_cast<size_t>(node.index);
  }

  static constexpr int kBits = 3;  // a node has two to the power of so many children

  int levels_ = 1;
  std::vector<size_t> level_begin_;  // id of each level's first node
  std::vector<RangeSet>
      covering_;  // per node above positions: requests that cover its span, but not its parent's
  std::vector<RangeSet> touching_;  // per node: requests that cover it or a node below it
  // Per node: requests that will cover it, but not its parent, so ask for `touching_`; and those
  // left. Without spans, of which nothing is known, the latter never end.
  std::vector<int32_t> asked_, left_;
  std::vector<int32_t> changed_;  // per node: when `covering_` last changed
  int32_t now_ = 0;               // requests taken
  std::vector<int64_t> classes_;  // the least size in each, ascending
  std::vector<Hint> hints_;       // by node above positions, and class
  std::vector<Cursor> cursors_;   // of the query under way
};

}  // namespace dc::layout
