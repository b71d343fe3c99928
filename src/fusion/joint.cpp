#include "src/fusion/joint.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "src/fusion/greedy.h"
#include "src/fusion/search.h"

namespace dc::fusion {
namespace {

using base::Nanos;

// Where the best runs of reductions end, and when the last of them is through.
struct Runs {
  std::vector<int32_t> queue;  // reductions
  std::vector<size_t> begin;   // by the end of a run: where the best run that ends there begins
  Nanos time;
};

Runs best_runs(const Problem& problem, const std::vector<Nanos>& produced,
               const LinearTime& collective) {
  const std::vector<Reduction>& reductions = problem.reductions;
  const auto at = [&](int32_t i) { return produced[static_cast<size_t>(i)]; };
  Runs runs;
  runs.queue.resize(reductions.size());
  std::iota(runs.queue.begin(), runs.queue.end(), 0);
  std::ranges::stable_sort(runs.queue, {}, at);
  std::vector<Nanos> ended(reductions.size() + 1);
  runs.begin.resize(reductions.size() + 1);
  for (size_t end = 1; end <= reductions.size(); ++end) {
    const int32_t last = runs.queue[end - 1];
    const int32_t kind = reductions[static_cast<size_t>(last)].kind;
    base::Bytes bytes;
    for (size_t begin = end; begin-- > 0;) {
      const Reduction& next = reductions[static_cast<size_t>(runs.queue[begin])];
      if (next.kind != kind) break;
      bytes += next.bytes;
      const Nanos time = collective.time(bytes);
      const bool is_first = begin + 1 == end;
      // Longer runs end later still.
      if (!is_first && at(last) + time >= ended[end]) break;
      const Nanos through = std::max(ended[begin], at(last)) + time;
      if (!is_first && through >= ended[end]) continue;
      ended[end] = through;
      runs.begin[end] = begin;
    }
  }
  runs.time = ended.back();
  return runs;
}

std::vector<int32_t> buckets_of(const Runs& runs) {
  std::vector<int32_t> buckets(runs.queue.size());
  for (size_t end = runs.queue.size(); end > 0; end = runs.begin[end]) {
    const auto first = runs.queue.begin() + static_cast<std::ptrdiff_t>(runs.begin[end]);
    const auto last = runs.queue.begin() + static_cast<std::ptrdiff_t>(end);
    const int32_t lowest = *std::min_element(first, last);
    for (auto i = first; i != last; ++i) buckets[static_cast<size_t>(*i)] = lowest;
  }
  return buckets;
}

struct Score {
  Nanos time, compute;
  auto operator<=>(const Score&) const = default;
};

struct Step {
  Score score;
  int32_t earlier = -1, later = -1;
  bool copy = false;
  auto operator<=>(const Step&) const = default;
};

class Descent {
 public:
  Descent(const LinearTime& collective, Order order) : collective_(collective), order_(order) {}

  Score score(const Draft& draft) {
    ++played_;
    work_ += static_cast<int64_t>(draft.problem().kernels.size());
    const Timeline timeline = play(draft, collective_, order_, &moments_);
    if (draft.problem().reductions.empty()) return {timeline.time, timeline.compute};
    const Runs runs = best_runs(draft.problem(), moments_.produced, collective_);
    return {std::min(timeline.time, std::max(timeline.compute, runs.time)), timeline.compute};
  }

  // True: nothing more helps. False: `work` is done.
  bool run(Draft& draft, bool copies, int64_t work) {
    end_ = work_ + work;
    Score best = score(draft);
    while (!is_spent()) {
      bool changed = false;
      for (const Step& step : steps(draft, best, copies)) {
        if (is_spent()) return false;
        Draft next = draft;
        if (!next.fuse(step.earlier, step.later, step.copy)) continue;
        const Score reached = score(next);
        if (reached >= best) continue;
        best = reached;
        draft = std::move(next);
        changed = true;
      }
      if (!changed) return !is_spent();
    }
    return false;
  }

  int64_t played() const { return played_; }
  int64_t work() const { return work_; }

 private:
  bool is_spent() const { return work_ >= end_; }

  // Those that help, the best first.
  std::vector<Step> steps(const Draft& draft, const Score& best, bool copies) {
    std::vector<Step> found;
    for (size_t i = 0; i < draft.groups().size(); ++i) {
      if (draft.groups()[i] == nullptr) continue;
      const auto later = static_cast<int32_t>(i);
      for (const int32_t earlier : draft.read_from(later)) {
        for (const bool copy : {false, true}) {
          if (is_spent()) return in_order(std::move(found));
          if (copy && !copies) continue;
          Draft next = draft;
          if (!next.fuse(earlier, later, copy)) continue;
          const Score reached = score(next);
          if (reached < best) found.push_back({reached, earlier, later, copy});
        }
      }
    }
    return in_order(std::move(found));
  }
  static std::vector<Step> in_order(std::vector<Step> steps) {
    std::ranges::sort(steps);
    return steps;
  }

  LinearTime collective_;
  Order order_;
  Moments moments_;
  int64_t played_ = 0, work_ = 0, end_ = 0;
};

}  // namespace

Timeline join_best(Draft& draft, const LinearTime& collective, Order order) {
  Moments moments;
  const Timeline before = play(draft, collective, order, &moments);
  if (draft.problem().reductions.empty()) return before;
  Draft joined = draft;
  joined.set_buckets(buckets_of(best_runs(draft.problem(), moments.produced, collective)));
  const Timeline after = play(joined, collective, order);
  if (after.time >= before.time) return before;
  draft = std::move(joined);
  return after;
}

Joint improve(std::span<const Draft> starts, const LinearTime& collective, Order order,
              const JointRules& rules) {
  Descent descent(collective, order);
  std::vector<std::pair<Score, const Draft*>> sorted;
  for (const Draft& start : starts) sorted.emplace_back(descent.score(start), &start);
  std::ranges::stable_sort(sorted, {}, &std::pair<Score, const Draft*>::first);
  Score least = sorted.front().first;
  Joint found{*sorted.front().second, {}};
  std::set<uint64_t> known;
  for (size_t i = 0; i < sorted.size(); ++i) {
    Draft draft = *sorted[i].second;
    if (!known.insert(draft.hash()).second) continue;
    const int64_t left = rules.most_work - descent.work();
    const bool has_ended =
        descent.run(draft, rules.copies, left / static_cast<int64_t>(sorted.size() - i));
    const Score reached = descent.score(draft);
    if (i > 0 && reached >= least) continue;
    least = reached;
    found.best = std::move(draft);
    found.has_ended = has_ended;
  }
  found.timeline = join_best(found.best, collective, order);
  found.played = descent.played();
  return found;
}

Joint decide_jointly(const Draft& none, const LinearTime& collective, Order order) {
  constexpr int64_t kShort = 500;  // patience
  std::vector<Draft> starts{none, none};
  fuse_in_order(starts.back());
  const auto add = [&](const SearchRules& rules) {
    starts.push_back(search(none, collective, order, rules).best);
  };
  add({});
  add({.patience = kShort, .uses = {true, false, true}});
  add({.beta = 1, .patience = kShort});
  add({.beta = 5, .patience = kShort});
  return improve(starts, collective, order, {});
}

}  // namespace dc::fusion
