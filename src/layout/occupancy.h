// Occupancy: which byte ranges are taken over which positions. Answers "the lowest offset free
// throughout [first, last]" without looking at every request: a segment tree over time whose nodes
// hold coalesced byte ranges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dc::layout {

// A set of bytes as sorted, disjoint, coalesced ranges.
class RangeSet {
 public:
  struct Range {
    int64_t begin, end;
  };
  void add(int64_t begin, int64_t end);
  bool empty() const { return ranges_.empty(); }
  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  std::vector<Range> ranges_;
};

class Occupancy {
 public:
  explicit Occupancy(int32_t moments);  // positions 0 .. moments - 1
  // Lowest offset at which `bytes` fit in every position of [first, last]; does not take them.
  int64_t lowest_fit(int32_t first, int32_t last, int64_t bytes);
  void take(int32_t first, int32_t last, int64_t offset, int64_t bytes);

 private:
  struct Cursor {
    const RangeSet* set;
    size_t next;  // first range that ends behind the candidate offset
  };
  void collect(size_t node, int32_t low, int32_t high, int32_t first, int32_t last);
  void insert(size_t node, int32_t low, int32_t high, int32_t first, int32_t last, int64_t begin,
              int64_t end);

  int32_t width_ = 1;  // leaves, a power of two
  std::vector<RangeSet>
      covering_;  // per node: requests that cover the node's whole span, but not its parent's
  std::vector<RangeSet>
      touching_;  // per node: requests kept in `covering_` of this node or of one below it
  std::vector<Cursor> cursors_;  // of the query under way
};

}  // namespace dc::layout
