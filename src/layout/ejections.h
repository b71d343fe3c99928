// Ejections: brings a layout below a number of bytes by moving single requests.
//
// What ends above the limit is taken out. Then, the earliest first, each is placed below the limit
// where it displaces least, and what it displaces is taken out and placed in turn. A request counts
// for more each time it moves, so none is displaced again and again by the same ones: guided
// ejection search (Y. Nagata, O. Braysy, "A powerful route minimization heuristic for the vehicle
// routing problem with time windows", Operations Research Letters 37, 2009), for offsets in place
// of routes.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "src/layout/problem.h"

namespace dc::layout {

class Ejections {
 public:
  explicit Ejections(const Problem& problem);

  // Changes offsets, a layout of the problem, so that all end at `limit` at most; the same ones
  // every time. False, and `offsets` as they were, if `patience` looks do not leave fewer to be
  // placed than ever before. `limit`: a multiple of the alignment, and not less than the problem's
  // peak.
  bool bring_below(int64_t limit, int64_t patience, std::vector<int64_t>& offsets);

  // How many requests all calls looked at, to move others.
  int64_t looked() const { return looked_; }

 private:
  // A request.
  struct Item {
    int64_t offset, bytes;
    int32_t begin, end;            // moments
    int64_t least_weight, weight;  // to be displaced
    uint32_t from = 0, to = 0;     // edges where it begins and ends, if it has an offset
  };
  static constexpr int64_t kOut = -1;  // an offset: of what waits to be placed

  void put(Item& item, int64_t offset);
  uint32_t edge_at(int64_t offset);
  void find_alive_with(const Item& item);
  int64_t least_displacing(int64_t bytes, int64_t limit);

  std::vector<uint32_t> by_begin_;               // requests that take bytes, in this order
  std::vector<Item> items_;                      // of each
  std::vector<uint32_t> begun_;                  // by moment: how many begin before it
  std::vector<std::vector<uint32_t>> going_on_;  // by block of moments: items that began before it
  std::vector<uint32_t> alive_;                  // items, with the one that is looked at
  // An edge: an offset where items begin or end, numbered as they come. Many do at the same one:
  // there their weights are one.
  std::unordered_map<int64_t, uint32_t> edges_;     // by offset
  std::vector<int64_t> begin_weight_, end_weight_;  // by edge; 0 outside of least_displacing()
  std::vector<uint64_t> begins_, ends_, spare_;     // edges of alive_: sortable() in ejections.cpp
  int64_t looked_ = 0;
};

}  // namespace dc::layout
