#include "src/layout/occupancy.h"

#include <algorithm>

namespace dc::layout {

void RangeSet::add(int64_t begin, int64_t end) {
  auto ends_before = [](const Range& range, int64_t value) { return range.end < value; };
  auto low = std::lower_bound(ranges_.begin(), ranges_.end(), begin, ends_before);
  auto high = low;
  while (high != ranges_.end() && high->begin <= end) {
    begin = std::min(begin, high->begin);
    end = std::max(end, high->end);
    ++high;
  }
  if (low == high) {
    ranges_.insert(low, Range{begin, end});
    return;
  }
  *low = Range{begin, end};
  ranges_.erase(low + 1, high);
}

Occupancy::Occupancy(int32_t moments) {
  while (width_ < moments) width_ *= 2;
  covering_.resize(2 * static_cast<size_t>(width_));
  touching_.resize(2 * static_cast<size_t>(width_));
}

void Occupancy::collect(size_t node, int32_t low, int32_t high, int32_t first, int32_t last) {
  if (touching_[node].empty() && covering_[node].empty()) return;
  if (first <= low && high <= last) {
    cursors_.push_back({&touching_[node], 0});
    return;
  }
  if (!covering_[node].empty()) cursors_.push_back({&covering_[node], 0});
  int32_t middle = low + (high - low) / 2;
  if (first <= middle) collect(2 * node, low, middle, first, last);
  if (last > middle) collect(2 * node + 1, middle + 1, high, first, last);
}

int64_t Occupancy::lowest_fit(int32_t first, int32_t last, int64_t bytes) {
  cursors_.clear();
  collect(1, 0, width_ - 1, first, last);
  int64_t offset = 0;
  size_t quiet = 0;  // sets seen in a row that leave `offset` where it is
  for (size_t i = 0; quiet < cursors_.size(); i = i + 1 == cursors_.size() ? 0 : i + 1) {
    Cursor& cursor = cursors_[i];
    const auto& ranges = cursor.set->ranges();
    if (cursor.next < ranges.size() && ranges[cursor.next].end <= offset) {
      auto ends_before = [](int64_t value, const RangeSet::Range& range) {
        return value < range.end;
      };
      auto from = ranges.begin() + static_cast<std::ptrdiff_t>(cursor.next);
      cursor.next = static_cast<size_t>(std::upper_bound(from, ranges.end(), offset, ends_before) -
                                        ranges.begin());
    }
    ++quiet;
    while (cursor.next < ranges.size() && ranges[cursor.next].begin < offset + bytes) {
      offset = ranges[cursor.next++].end;
      quiet = 1;
    }
  }
  return offset;
}

void Occupancy::insert(size_t node, int32_t low, int32_t high, int32_t first, int32_t last,
                       int64_t begin, int64_t end) {
  touching_[node].add(begin, end);
  if (first <= low && high <= last) {
    covering_[node].add(begin, end);
    return;
  }
  int32_t middle = low + (high - low) / 2;
  if (first <= middle) insert(2 * node, low, middle, first, last, begin, end);
  if (last > middle) insert(2 * node + 1, middle + 1, high, first, last, begin, end);
}

void Occupancy::take(int32_t first, int32_t last, int64_t offset, int64_t bytes) {
  insert(1, 0, width_ - 1, first, last, offset, offset + bytes);
}

}  // namespace dc::layout
