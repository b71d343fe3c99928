#include "src/fusion/bounds.h"

#include <algorithm>
#include <bit>

#include "src/sim/one_machine.h"

namespace dc::fusion {
namespace {

using base::Nanos;

// Of each group, those that must have ended before it begins, and itself.
class Ancestors {
 public:
  explicit Ancestors(const Draft& draft) : draft_(draft), words_(draft.groups().size() / 64 + 1) {
    const size_t groups = draft.groups().size();
    sets_.assign(groups, std::vector<uint64_t>());
    std::vector<int32_t> waits(groups), ready;
    for (size_t i = 0; i < groups; ++i) {
      if (draft.groups()[i] == nullptr) continue;
      sets_[i].assign(words_, 0);
      sets_[i][i / 64] |= uint64_t{1} << (i % 64);
      draft.each_successor(static_cast<int32_t>(i),
                           [&](int32_t to) { ++waits[static_cast<size_t>(to)]; });
    }
    for (size_t i = 0; i < groups; ++i) {
      if (draft.groups()[i] != nullptr && waits[i] == 0) ready.push_back(static_cast<int32_t>(i));
    }
    while (!ready.empty()) {
      const auto group = static_cast<size_t>(ready.back());
      ready.pop_back();
      draft.each_successor(static_cast<int32_t>(group), [&](int32_t to) {
        add(sets_[static_cast<size_t>(to)], sets_[group]);
        if (--waits[static_cast<size_t>(to)] == 0) ready.push_back(to);
      });
    }
  }

  std::vector<uint64_t> none() const { return std::vector<uint64_t>(words_); }
  const std::vector<uint64_t>& of(int32_t group) const { return sets_[static_cast<size_t>(group)]; }
  static void add(std::vector<uint64_t>& to, const std::vector<uint64_t>& from) {
    for (size_t i = 0; i < to.size(); ++i) to[i] |= from[i];
  }
  template <typename What>
  static void each(const std::vector<uint64_t>& set, const What& what) {
    for (size_t word = 0; word < set.size(); ++word) {
      for (uint64_t left = set[word]; left != 0; left &= left - 1)
        what(word * 64 + static_cast<size_t>(std::countr_zero(left)));
    }
  }
  // One device runs them all.
  Nanos time(const std::vector<uint64_t>& set) const {
    Nanos sum;
    each(set, [&](size_t group) { sum += draft_.groups()[group]->time; });
    return sum;
  }

 private:
  const Draft& draft_;
  size_t words_;
  std::vector<std::vector<uint64_t>> sets_;
};

}  // namespace

Nanos with_ends(const Draft& draft, const LinearTime& collective) {
  const Ancestors ancestors(draft);
  const std::vector<Reduction>& reductions = draft.problem().reductions;
  std::vector<std::vector<uint64_t>> needed(reductions.size());  // by bucket: groups
  std::vector<base::Bytes> bytes(reductions.size());
  for (size_t i = 0; i < reductions.size(); ++i) {
    const auto bucket = static_cast<size_t>(draft.bucket(static_cast<int32_t>(i)));
    if (needed[bucket].empty()) needed[bucket] = ancestors.none();
    for (const int32_t kernel : reductions[i].after)
      Ancestors::add(needed[bucket], ancestors.of(draft.owner(kernel)));
    bytes[bucket] += reductions[i].bytes;
  }
  // The channel carries what follows a kernel one after the other, and so does the device.
  std::vector<Nanos> carried(draft.groups().size());
  std::vector<sim::Job> buckets, kernels;
  for (size_t i = 0; i < needed.size(); ++i) {
    if (needed[i].empty()) continue;
    const Nanos time = collective.time(bytes[i]);
    buckets.push_back({ancestors.time(needed[i]), time, {}});
    Ancestors::each(needed[i], [&](size_t group) { carried[group] += time; });
  }
  std::vector<Nanos> followed(draft.groups().size());
  for (size_t i = 0; i < draft.groups().size(); ++i) {
    if (draft.groups()[i] == nullptr) continue;
    const Nanos time = draft.groups()[i]->time;
    Ancestors::each(ancestors.of(static_cast<int32_t>(i)), [&](size_t before) {
      if (before != i) followed[before] += time;
    });
  }
  for (size_t i = 0; i < draft.groups().size(); ++i) {
    if (draft.groups()[i] == nullptr) continue;
    const Nanos time = draft.groups()[i]->time;
    const Nanos before = ancestors.time(ancestors.of(static_cast<int32_t>(i))) - time;
    kernels.push_back({before, time, std::max(carried[i], followed[i])});
  }
  return std::max(sim::one_machine(buckets).sum(), sim::one_machine(kernels).sum());
}

}  // namespace dc::fusion
