// Draft's fusions once more, as sets and without anything kept up to date: every answer is worked
// out from the members of all groups, and cycles by a walk over all that follows.
#pragma once

#include <algorithm>
#include <set>
#include <vector>

#include "src/fusion/problem.h"

namespace dc::fusion {

enum class Fused { Yes, No, Cycle };

class PlainDraft {
 public:
  struct Members {
    std::set<int32_t> all, own;
  };

  explicit PlainDraft(const Problem& problem) : problem_(&problem) {
    const auto count = static_cast<int32_t>(problem.kernels.size());
    for (int32_t i = 0; i < count; ++i) groups_.push_back({{i}, {i}});
  }

  const std::vector<Members>& groups() const { return groups_; }

  Fused fuse(int32_t earlier, int32_t later, bool duplicate) {
    const Members first = groups_[static_cast<size_t>(earlier)];
    const Members second = groups_[static_cast<size_t>(later)];
    if (earlier == later || first.all.empty() || second.all.empty()) return Fused::No;
    const int32_t kind = problem_->kernel(*first.all.begin()).kind;
    if (kind < 0 || kind != problem_->kernel(*second.all.begin()).kind) return Fused::No;
    if (!reads_shown(second, first)) return Fused::No;
    PlainDraft next = *this;
    Members& made = next.groups_[static_cast<size_t>(later)];
    made.all.insert(first.all.begin(), first.all.end());
    if (!duplicate) {
      made.own.insert(first.own.begin(), first.own.end());
      next.groups_[static_cast<size_t>(earlier)] = {};
    }
    while (next.drop_one()) {
    }
    for (const int32_t member : made.all) {
      for (const int32_t before : problem_->kernel(member).after) {
        if (made.all.contains(before)) return Fused::No;
      }
    }
    if (next.is_on_cycle(static_cast<size_t>(later))) return Fused::Cycle;
    *this = std::move(next);
    return Fused::Yes;
  }

 private:
  bool reads(int32_t kernel, int32_t maker) const {
    return std::ranges::any_of(problem_->kernel(kernel).reads,
                               [&](int32_t value) { return problem_->maker(value) == maker; });
  }
  bool reads(const Members& group, int32_t maker) const {
    return std::ranges::any_of(group.all, [&](int32_t member) { return reads(member, maker); });
  }
  bool reads_shown(const Members& group, const Members& from) const {
    return std::ranges::any_of(from.own, [&](int32_t kernel) {
      return !group.all.contains(kernel) && reads(group, kernel);
    });
  }
  bool must_follow(const Members& group, const Members& from) const {
    return std::ranges::any_of(group.all, [&](int32_t member) {
      return std::ranges::any_of(problem_->kernel(member).after,
                                 [&](int32_t before) { return from.all.contains(before); });
    });
  }

  bool drop_one() {
    for (Members& group : groups_) {
      for (const int32_t member : group.all) {
        const bool is_own = group.own.contains(member);
        if (is_own && !is_shown(group, member)) return group.own.erase(member) > 0;
        if (!is_own && !reads(group, member)) return group.all.erase(member) > 0;
      }
    }
    return false;
  }
  bool is_shown(const Members& group, int32_t kernel) const {
    if (problem_->value(problem_->kernel(kernel).makes[0]).kept) return true;
    return std::ranges::any_of(groups_, [&](const Members& other) {
      return &other != &group && !other.all.contains(kernel) && reads(other, kernel);
    });
  }

  bool is_on_cycle(size_t start) const {
    std::set<size_t> seen;
    std::vector<size_t> open{start};
    while (!open.empty()) {
      const Members& from = groups_[open.back()];
      open.pop_back();
      for (size_t to = 0; to < groups_.size(); ++to) {
        if (&groups_[to] == &from) continue;
        if (!reads_shown(groups_[to], from) && !must_follow(groups_[to], from)) continue;
        if (to == start) return true;
        if (seen.insert(to).second) open.push_back(to);
      }
    }
    return false;
  }

  const Problem* problem_;
  std::vector<Members> groups_;
};

}  // namespace dc::fusion
