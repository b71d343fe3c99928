#include "src/fusion/search.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>

#include "src/fusion/draws.h"
#include "src/fusion/random_fusion.h"

namespace dc::fusion {
namespace {

constexpr int kDraws = 16;            // of one change until one is allowed
constexpr size_t kMostQueued = 4096;  // then half of them are dropped

class Chooser {
 public:
  Chooser(const Problem& problem, uint64_t seed) : fusion_(problem), draws_(seed) {}

  int times(int beta) { return static_cast<int>(draws_.below(static_cast<size_t>(beta) + 1)); }

  // False if no change was found.
  bool change(Draft& draft, Method method) {
    for (int i = 0; i < kDraws; ++i) {
      const bool changed = method == Method::Merge
                               ? merge(draft)
                               : fusion_.fuse(draft, draws_, method == Method::FuseCopy);
      if (changed) return true;
    }
    return false;
  }

 private:
  bool merge(Draft& draft) {
    const size_t count = draft.problem().reductions.size();
    if (count == 0) return false;
    const auto reduction = static_cast<int32_t>(draws_.below(count));
    const std::vector<int32_t> near = neighbouring_buckets(draft, reduction);
    return !near.empty() && draft.merge(reduction, near[draws_.below(near.size())]);
  }

  RandomFusion fusion_;
  Draws draws_;
};

struct Queued {
  base::Nanos time;
  int64_t number = 0;  // the earlier of equals first
  Draft draft;
  bool operator<(const Queued& other) const {
    return time != other.time ? time < other.time : number < other.number;
  }
};

bool is_near(base::Nanos time, base::Nanos best, double alpha) {
  return static_cast<double>(time.v) <= alpha * static_cast<double>(best.v);
}

void make_room(std::set<Queued>& queue) {
  if (queue.size() <= kMostQueued) return;
  queue.erase(std::next(queue.begin(), kMostQueued / 2), queue.end());
}

// Adds the buckets of what the group makes.
void add_buckets(const Draft& draft, int32_t group, int32_t than, std::vector<int32_t>& found) {
  const Problem& problem = draft.problem();
  const auto kind = [&](int32_t reduction) {
    return problem.reductions[static_cast<size_t>(reduction)].kind;
  };
  for (const int32_t kernel : draft.groups()[static_cast<size_t>(group)]->own) {
    for (const int32_t reduction : problem.reductions_of(kernel)) {
      if (draft.bucket(reduction) != draft.bucket(than) && kind(reduction) == kind(than))
        found.push_back(draft.bucket(reduction));
    }
  }
}

bool has_other_bucket(const Draft& draft, int32_t than) {
  const std::vector<Reduction>& reductions = draft.problem().reductions;
  for (size_t i = 0; i < reductions.size(); ++i) {
    if (draft.bucket(static_cast<int32_t>(i)) != draft.bucket(than) &&
        reductions[i].kind == reductions[static_cast<size_t>(than)].kind)
      return true;
  }
  return false;
}

}  // namespace

std::vector<int32_t> neighbouring_buckets(const Draft& draft, int32_t reduction) {
  if (!has_other_bucket(draft, reduction)) return {};
  std::vector<bool> seen(draft.groups().size());
  std::vector<int32_t> layer, found;
  const auto reach = [&](std::vector<int32_t>& next, int32_t group) {
    if (seen[static_cast<size_t>(group)]) return;
    seen[static_cast<size_t>(group)] = true;
    next.push_back(group);
  };
  for (const int32_t kernel : draft.problem().reductions[static_cast<size_t>(reduction)].after)
    reach(layer, draft.owner(kernel));
  while (!layer.empty()) {
    for (const int32_t group : layer) add_buckets(draft, group, reduction, found);
    if (!found.empty()) break;
    std::vector<int32_t> next;
    for (const int32_t group : layer) {
      draft.each_read_from(group, [&](int32_t before) { reach(next, before); });
      draft.each_successor(group, [&](int32_t after) { reach(next, after); });
    }
    layer = std::move(next);
  }
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

Found search(Draft start, const LinearTime& collective, Order order, const SearchRules& rules) {
  Chooser chooser(start.problem(), rules.seed);
  Found found{start, play(start, collective, order), 0, 0, 0};
  std::unordered_map<uint64_t, base::Nanos> known{{start.hash(), found.timeline.time}};
  std::set<Queued> queue;
  queue.insert({found.timeline.time, 0, std::move(start)});
  int64_t without_gain = 0, number = 0;
  while (!queue.empty() && without_gain < rules.patience) {
    const Draft taken = std::move(queue.extract(queue.begin()).value().draft);
    ++found.taken;
    for (int i = 0; i < kMethods; ++i) {
      if (!rules.uses[i]) continue;
      Draft changed = taken;
      const int times = chooser.times(rules.beta);
      bool valid = times == 0;
      for (int k = 0; k < times; ++k) valid |= chooser.change(changed, static_cast<Method>(i));
      if (!valid) continue;
      ++found.candidates;
      const auto [at, is_new] = known.try_emplace(changed.hash());
      if (is_new) {
        const Timeline timeline = play(changed, collective, order);
        at->second = timeline.time;
        ++found.played;
        if (timeline.time < found.timeline.time) {
          found.best = changed;
          found.timeline = timeline;
          without_gain = -1;
        }
      }
      ++without_gain;
      const base::Nanos time = at->second;
      if (is_near(time, found.timeline.time, rules.alpha))
        queue.insert({time, ++number, std::move(changed)});
    }
    make_room(queue);
  }
  return found;
}

}  // namespace dc::fusion
