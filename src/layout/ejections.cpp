#include "src/layout/ejections.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <queue>

#include "src/base/units.h"

namespace dc::layout {
namespace {

constexpr int32_t kBlock = 32;  // moments

// The offset of an edge, in units of the alignment, above its number: so edges are sorted as plain
// numbers.
constexpr int kIndexBits = 26;
constexpr uint64_t kIndexMask = (uint64_t{1} << kIndexBits) - 1;
uint64_t sortable(int64_t offset, uint32_t edge) {
  return static_cast<uint64_t>(offset / base::kAlignment) << kIndexBits | edge;
}
int64_t offset_of(uint64_t edge) {
  return static_cast<int64_t>(edge >> kIndexBits) * base::kAlignment;
}

// `bits`: that their offsets take, in units of the alignment. By the first two bytes of these, the
// second first; then those that have these alike, mostly few. Of hundreds that takes less time than
// comparisons.
void sort_by_offset(std::vector<uint64_t>& edges, std::vector<uint64_t>& spare, int bits) {
  constexpr size_t kFew = 32;
  constexpr int kDigitBits = 8, kDigits = 2;
  constexpr uint64_t kMask = (1 << kDigitBits) - 1;
  if (edges.size() < kFew) {
    std::ranges::sort(edges);
    return;
  }
  spare.resize(edges.size());
  const int first = kIndexBits + std::max(0, bits - kDigits * kDigitBits);
  for (int shift = first; shift < first + kDigits * kDigitBits; shift += kDigitBits) {
    std::array<uint32_t, kMask + 2> before{};  // edges of lesser digits
    for (const uint64_t edge : edges) ++before[(edge >> shift & kMask) + 1];
    std::partial_sum(before.begin(), before.end(), before.begin());
    for (const uint64_t edge : edges) spare[before[edge >> shift & kMask]++] = edge;
    edges.swap(spare);
  }
  for (auto alike = edges.begin(); alike != edges.end();) {
    const auto next = std::find_if(alike + 1, edges.end(),
                                   [&](uint64_t edge) { return edge >> first != *alike >> first; });
    std::sort(alike, next);
    alike = next;
  }
}

}  // namespace

Ejections::Ejections(const Problem& problem)
    : begun_(static_cast<size_t>(problem.moments) + 1),
      going_on_(static_cast<size_t>(problem.moments / kBlock) + 1) {
  for (uint32_t i = 0; i < problem.size(); ++i) {
    if (problem.bytes[i] > 0) by_begin_.push_back(i);
  }
  std::ranges::stable_sort(by_begin_, {}, [&](uint32_t i) { return problem.begin[i]; });
  for (const uint32_t i : by_begin_) {
    const Item item{kOut, problem.bytes[i], problem.begin[i], problem.end[i], 0, 0};
    const double area = static_cast<double>(item.bytes) * static_cast<double>(problem.duration(i));
    ++begun_[static_cast<size_t>(item.begin) + 1];
    for (int32_t block = item.begin / kBlock + 1; block * kBlock <= item.end; ++block)
      going_on_[static_cast<size_t>(block)].push_back(static_cast<uint32_t>(items_.size()));
    items_.push_back(item);
    items_.back().least_weight = 1 + static_cast<int64_t>(std::sqrt(area));
  }
  std::partial_sum(begun_.begin(), begun_.end(), begun_.begin());
}

bool Ejections::bring_below(int64_t limit, int64_t patience, std::vector<int64_t>& offsets) {
  edges_.clear();
  begin_weight_.clear();
  end_weight_.clear();
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> out;
  for (uint32_t k = 0; k < items_.size(); ++k) {
    Item& item = items_[k];
    item.weight = item.least_weight;
    if (const int64_t offset = offsets[by_begin_[k]]; offset + item.bytes <= limit) {
      put(item, offset);
      continue;
    }
    item.offset = kOut;
    out.push(k);
  }
  size_t fewest = out.size();
  int64_t since = looked_;
  while (!out.empty()) {
    if (looked_ - since > patience || edges_.size() + 2 > kIndexMask) return false;
    Item& item = items_[out.top()];
    out.pop();
    find_alive_with(item);
    const int64_t offset = least_displacing(item.bytes, limit);
    for (const uint32_t k : alive_) {
      Item& other = items_[k];
      if (other.offset >= offset + item.bytes || other.offset + other.bytes <= offset) continue;
      other.offset = kOut;
      other.weight += other.least_weight;
      out.push(k);
    }
    put(item, offset);
    item.weight += item.least_weight;
    if (out.size() >= fewest) continue;
    fewest = out.size();
    since = looked_;
  }
  for (size_t k = 0; k < items_.size(); ++k) offsets[by_begin_[k]] = items_[k].offset;
  return true;
}

void Ejections::put(Item& item, int64_t offset) {
  item.offset = offset;
  item.from = edge_at(offset);
  item.to = edge_at(offset + item.bytes);
}

uint32_t Ejections::edge_at(int64_t offset) {
  const auto number = static_cast<uint32_t>(edges_.size());
  const auto [found, is_new] = edges_.try_emplace(offset, number);
  if (is_new) {
    begin_weight_.push_back(0);
    end_weight_.push_back(0);
  }
  return found->second;
}

// What has a place.
void Ejections::find_alive_with(const Item& item) {
  alive_.clear();
  const auto look_at = [&](uint32_t k) {
    if (items_[k].end >= item.begin && items_[k].offset != kOut) alive_.push_back(k);
  };
  const int32_t block = item.begin / kBlock;
  const std::vector<uint32_t>& going_on = going_on_[static_cast<size_t>(block)];
  uint32_t next = begun_[static_cast<size_t>(block) * kBlock];
  const uint32_t end = begun_[static_cast<size_t>(item.end) + 1];
  looked_ += static_cast<int64_t>(going_on.size()) + end - next;
  for (const uint32_t k : going_on) look_at(k);
  for (; next < end; ++next) look_at(next);
}

// The offset at which what is alive and in the way weighs least; the lowest of several. What is in
// the way begins below the end and does not end at or below the offset.
int64_t Ejections::least_displacing(int64_t bytes, int64_t limit) {
  begins_.clear();
  ends_.clear();
  const auto add = [](uint32_t edge, int64_t offset, int64_t weight, std::vector<int64_t>& weights,
                      std::vector<uint64_t>& edges) {
    if (weights[edge] == 0) edges.push_back(sortable(offset, edge));
    weights[edge] += weight;
  };
  for (const uint32_t k : alive_) {
    const Item& item = items_[k];
    add(item.from, item.offset, item.weight, begin_weight_, begins_);
    add(item.to, item.offset + item.bytes, item.weight, end_weight_, ends_);
  }
  const auto bits =
      static_cast<int>(std::bit_width(static_cast<uint64_t>(limit / base::kAlignment)));
  sort_by_offset(begins_, spare_, bits);
  sort_by_offset(ends_, spare_, bits);
  const auto weight_of = [](uint64_t edge, const std::vector<int64_t>& weights) {
    return weights[edge & kIndexMask];
  };
  const int64_t highest = limit - bytes;
  int64_t least = INT64_MAX, best = 0, in_the_way = 0;
  size_t begun = 0, ended = 0;
  const auto look_at = [&](int64_t offset) {
    for (; begun < begins_.size() && offset_of(begins_[begun]) < offset + bytes; ++begun)
      in_the_way += weight_of(begins_[begun], begin_weight_);
    for (; ended < ends_.size() && offset_of(ends_[ended]) <= offset; ++ended)
      in_the_way -= weight_of(ends_[ended], end_weight_);
    if (in_the_way >= least) return;
    least = in_the_way;
    best = offset;
  };
  // Directly above one or directly below one, upwards; at the bottom and at the top.
  look_at(0);
  for (size_t above = 0, below = 0; least > 0;) {
    while (below < begins_.size() && offset_of(begins_[below]) < bytes) ++below;
    int64_t next = highest;
    if (above < ends_.size()) next = std::min(next, offset_of(ends_[above]));
    if (below < begins_.size()) next = std::min(next, offset_of(begins_[below]) - bytes);
    look_at(next);
    if (next == highest) break;
    while (above < ends_.size() && offset_of(ends_[above]) <= next) ++above;
    while (below < begins_.size() && offset_of(begins_[below]) - bytes <= next) ++below;
  }
  for (const uint64_t edge : begins_) begin_weight_[edge & kIndexMask] = 0;
  for (const uint64_t edge : ends_) end_weight_[edge & kIndexMask] = 0;
  return best;
}

}  // namespace dc::layout
