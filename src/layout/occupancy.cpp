#include "src/layout/occupancy.h"

#include <algorithm>
#include <bit>

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

namespace {

// A step repeats few sizes. Where there are more, a class is a run of them.
constexpr size_t kClasses = 64;

// Spans with hints: 16, 128, 1024, ... positions. Between them a search has little to find.
constexpr int32_t kNarrowest = 16;
constexpr int32_t kWiden = 8;

std::vector<int64_t> classes_of(std::span<const int64_t> sizes) {
  std::vector<int64_t> distinct(sizes.begin(), sizes.end());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  if (distinct.size() <= kClasses) return distinct;
  std::vector<int64_t> classes;
  for (size_t c = 0; c < kClasses; ++c) classes.push_back(distinct[c * distinct.size() / kClasses]);
  return classes;
}

// `span`: a power of two.
bool has_hints(int32_t span) {
  constexpr int kFirst = std::countr_zero(static_cast<uint32_t>(kNarrowest)),
                kStep = std::countr_zero(static_cast<uint32_t>(kWiden));
  const int bits = std::countr_zero(static_cast<uint32_t>(span));
  return bits >= kFirst && (bits - kFirst) % kStep == 0;
}

}  // namespace

Occupancy::Occupancy(int32_t moments, std::span<const int64_t> sizes)
    : classes_(classes_of(sizes)) {
  while (width_ < moments) width_ *= 2;
  covering_.resize(2 * static_cast<size_t>(width_));
  touching_.resize(2 * static_cast<size_t>(width_));
  changed_.resize(2 * static_cast<size_t>(width_));
  const size_t with_hints = width_ < kNarrowest ? 0 : static_cast<size_t>(width_ / kNarrowest) * 2;
  hints_.resize(with_hints * classes_.size());
}

void Occupancy::clear() {
  for (RangeSet& set : covering_) set.clear();
  for (RangeSet& set : touching_) set.clear();
  std::fill(changed_.begin(), changed_.end(), 0);
  std::fill(hints_.begin(), hints_.end(), Hint());
  now_ = 0;
}

// Moves all cursors forward to the lowest offset, from `offset` on, at which `bytes` are free in
// all of their sets. Returns that offset.
int64_t Occupancy::advance(int64_t offset, int64_t bytes) {
  size_t quiet = 0;  // consecutive sets that did not change `offset`
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

// Goes down from `node` while one child holds the range, and leaves cursors on what covers the
// nodes passed. All of that is taken for every request below, so hints on the way say how far it
// goes: many short requests stand behind the same long ones.
int64_t Occupancy::begin_of_search(Node& node, int32_t first, int32_t last, int64_t bytes) {
  const auto above = std::upper_bound(classes_.begin(), classes_.end(), bytes);
  const size_t size_class = static_cast<size_t>(above - classes_.begin());  // counts from 1
  int64_t offset = 0;
  for (int32_t changed = 0;;) {
    if (!covering_[node.index].empty()) cursors_.push_back({&covering_[node.index], 0});
    changed = std::max(changed, changed_[node.index]);
    if (size_class > 0 && has_hints(node.high - node.low + 1)) {
      Hint& hint = hints_[node.index * classes_.size() + size_class - 1];
      if (hint.moment < changed) {
        hint.offset = advance(std::max(hint.offset, offset), classes_[size_class - 1]);
        hint.moment = now_;
      }
      offset = hint.offset;
    }
    if (node.low == first && node.high == last) return offset;
    if (const Node child = left(node); child.holds(first, last)) {
      node = child;
    } else if (const Node other = right(node); other.holds(first, last)) {
      node = other;
    } else {
      return offset;
    }
  }
}

void Occupancy::collect(Node node, int32_t first, int32_t last) {
  if (touching_[node.index].empty()) return;
  if (first <= node.low && node.high <= last) {
    cursors_.push_back({&touching_[node.index], 0});
    return;
  }
  if (!covering_[node.index].empty()) cursors_.push_back({&covering_[node.index], 0});
  const Node before = left(node), behind = right(node);
  if (first <= before.high) collect(before, first, last);
  if (last >= behind.low) collect(behind, first, last);
}

int64_t Occupancy::lowest_fit(int32_t first, int32_t last, int64_t bytes) {
  cursors_.clear();
  Node node = root();
  const int64_t offset = begin_of_search(node, first, last, bytes);
  if (node.low == first && node.high == last) {
    cursors_.push_back({&touching_[node.index], 0});
  } else {
    collect(left(node), first, last);
    collect(right(node), first, last);
  }
  return advance(offset, bytes);
}

void Occupancy::insert(Node node, int32_t first, int32_t last, int64_t begin, int64_t end) {
  touching_[node.index].add(begin, end);
  if (first <= node.low && node.high <= last) {
    covering_[node.index].add(begin, end);
    changed_[node.index] = now_;
    return;
  }
  const Node before = left(node), behind = right(node);
  if (first <= before.high) insert(before, first, last, begin, end);
  if (last >= behind.low) insert(behind, first, last, begin, end);
}

void Occupancy::take(int32_t first, int32_t last, int64_t offset, int64_t bytes) {
  ++now_;
  insert(root(), first, last, offset, offset + bytes);
}

}  // namespace dc::layout
