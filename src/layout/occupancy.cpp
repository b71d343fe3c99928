#include "src/layout/occupancy.h"

#include <algorithm>
#include <limits>

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

std::vector<int64_t> classes_of(std::span<const int64_t> sizes) {
  std::vector<int64_t> distinct(sizes.begin(), sizes.end());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  if (distinct.size() <= kClasses) return distinct;
  std::vector<int64_t> classes;
  for (size_t c = 0; c < kClasses; ++c) classes.push_back(distinct[c * distinct.size() / kClasses]);
  return classes;
}

}  // namespace

Occupancy::Occupancy(int32_t moments, std::span<const int64_t> sizes)
    : classes_(classes_of(sizes)) {
  size_t nodes = 0;
  for (levels_ = 1;; ++levels_) {
    level_begin_.push_back(nodes);
    const int32_t count = ((moments - 1) >> (kBits * (levels_ - 1))) + 1;
    nodes += static_cast<size_t>(count);
    if (count == 1) break;
  }
  covering_.resize(nodes);
  touching_.resize(nodes);
  asked_.assign(nodes, std::numeric_limits<int32_t>::max());
  left_ = asked_;
  changed_.resize(nodes);
  const size_t leaves = levels_ == 1 ? nodes : level_begin_[1];
  hints_.resize((nodes - leaves) * classes_.size());
}

Occupancy::Occupancy(int32_t moments, std::span<const int64_t> sizes, std::span<const Span> spans)
    : Occupancy(moments, sizes) {
  std::fill(asked_.begin(), asked_.end(), 0);
  for (const Span& span : spans) expect(root(), span);
  left_ = asked_;
}

void Occupancy::expect(Node node, const Span& span) {
  if (span.first <= low_of(node) && high_of(node) <= span.last) {
    ++asked_[id(node)];
    return;
  }
  const Children below = children_in(node, span.first, span.last);
  for (int32_t child = below.first; child <= below.last; ++child)
    expect({node.level - 1, child}, span);
}

void Occupancy::clear() {
  for (RangeSet& set : covering_) set.clear();
  for (RangeSet& set : touching_) set.clear();
  left_ = asked_;
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
    if (node.level == 0) return offset;
    const size_t at = id(node);
    if (!covering_[at].empty()) cursors_.push_back({&covering_[at], 0});
    changed = std::max(changed, changed_[at]);
    if (size_class > 0) {
      Hint& hint = hints_[(at - level_begin_[1]) * classes_.size() + size_class - 1];
      if (hint.moment < changed) {
        hint.offset = advance(std::max(hint.offset, offset), classes_[size_class - 1]);
        hint.moment = now_;
      }
      offset = hint.offset;
    }
    const int shift = kBits * (node.level - 1);
    if (first >> shift != last >> shift) return offset;
    node = {node.level - 1, first >> shift};
  }
}

void Occupancy::collect(Node node, int32_t first, int32_t last) {
  const size_t at = id(node);
  if (first <= low_of(node) && high_of(node) <= last) {
    if (!touching_[at].empty()) cursors_.push_back({&touching_[at], 0});
    return;
  }
  if (!covering_[at].empty()) cursors_.push_back({&covering_[at], 0});
  collect_below(node, first, last);
}

void Occupancy::collect_below(Node node, int32_t first, int32_t last) {
  const Children below = children_in(node, first, last);
  for (int32_t child = below.first; child <= below.last; ++child)
    collect({node.level - 1, child}, first, last);
}

int64_t Occupancy::lowest_fit(int32_t first, int32_t last, int64_t bytes) {
  cursors_.clear();
  Node node = root();
  const int64_t offset = begin_of_search(node, first, last, bytes);
  if (low_of(node) == first && high_of(node) == last) {
    cursors_.push_back({&touching_[id(node)], 0});
  } else {
    collect_below(node, first, last);
  }
  return advance(offset, bytes);
}

void Occupancy::insert(Node node, int32_t first, int32_t last, int64_t begin, int64_t end) {
  const size_t at = id(node);
  const bool covers = first <= low_of(node) && high_of(node) <= last;
  if (covers) --left_[at];
  if (left_[at] > 0) touching_[at].add(begin, end);
  if (covers) {
    if (node.level == 0) return;  // all that touches it covers it
    covering_[at].add(begin, end);
    changed_[at] = now_;
    return;
  }
  const Children below = children_in(node, first, last);
  for (int32_t child = below.first; child <= below.last; ++child)
    insert({node.level - 1, child}, first, last, begin, end);
}

void Occupancy::take(int32_t first, int32_t last, int64_t offset, int64_t bytes) {
  ++now_;
  insert(root(), first, last, offset, offset + bytes);
}

}  // namespace dc::layout
