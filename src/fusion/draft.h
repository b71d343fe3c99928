// Draft: one answer to which kernels are fused and which reductions travel together. Small enough
// to be copied by the thousand: groups are shared until they change.
//
// The moves are those of DisCo (arXiv 2209.12769, section 4): a group is fused with the group
// before it, which then is gone (others read from the fused group, so they wait for all of it) or
// stays (the group has a copy of it of its own, and others start early); reductions travel as one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "src/fusion/fused_time.h"
#include "src/fusion/problem.h"

namespace dc::fusion {

// One kernel of the draft.
struct Group {
  std::vector<int32_t> members;  // kernels that it runs
  std::vector<int32_t> own;      // of them those whose values others read here; never empty
  std::vector<int32_t> operands, results;  // values read and written
  base::Nanos time;
  uint64_t hash = 0;  // of members and own

  bool has(int32_t kernel) const;
};

class Draft {
 public:
  // Nothing fused. Both must outlive it and its copies.
  Draft(const Problem& problem, const FusedTime& fused);

  // Makes one group of both. `duplicate`: `earlier` stays, as far as others read from it. False,
  // with nothing changed, if they may not be one: of another kind, beyond the limits, not one
  // right before the other, with a reading inside that goes through a view, or on a cycle.
  bool fuse(int32_t earlier, int32_t later, bool duplicate);
  // The buckets of two reductions become one. False if they are one or their kinds differ.
  bool merge(int32_t a, int32_t b);

  const Problem& problem() const { return *problem_; }
  // By number; null: gone.
  std::span<const std::shared_ptr<const Group>> groups() const { return groups_; }
  // The group whose results others read; -1: every reader has a copy.
  int32_t owner(int32_t kernel) const { return owner_[static_cast<size_t>(kernel)]; }
  // Its lowest member stands for a bucket.
  int32_t bucket(int32_t reduction) const { return bucket_[static_cast<size_t>(reduction)]; }

  // Calls what(group) for each group that must wait for `group`, some more than once; as often for
  // equal drafts.
  template <typename What>
  void each_successor(int32_t group, const What& what) const {
    const Group& from = *groups_[static_cast<size_t>(group)];
    for (const int32_t kernel : from.own) {
      for (const int32_t reader : problem_->readers(kernel)) {
        each_home(reader, [&](int32_t home) {
          if (home != group && !groups_[static_cast<size_t>(home)]->has(kernel)) what(home);
        });
      }
    }
    for (const int32_t kernel : from.members) {
      for (const int32_t follower : problem_->followers(kernel))
        each_home(follower, [&](int32_t home) {
          if (home != group) what(home);
        });
    }
  }
  // Groups that `group` waits for because it reads from them, ascending.
  std::vector<int32_t> read_from(int32_t group) const;

  uint64_t hash() const;

 private:
  template <typename What>
  void each_home(int32_t kernel, const What& what) const {
    if (owner(kernel) >= 0) what(owner(kernel));
    for (auto at = first_copy(kernel); at != copies_.end() && at->first == kernel; ++at)
      what(at->second);
  }
  std::vector<std::pair<int32_t, int32_t>>::const_iterator first_copy(int32_t kernel) const;
  bool is_read_outside(int32_t kernel, int32_t group, const Group& members) const;
  bool may_be_one(const Group& group) const;
  bool is_on_cycle(int32_t group) const;
  // Drops members that nothing needs any more, and works out what follows from the members; what
  // that changes elsewhere too.
  void refresh(std::vector<int32_t> changed);
  bool drop_unneeded(int32_t group, Group& made, std::vector<int32_t>& changed);
  void describe(Group& made) const;
  void set_copies(int32_t group, const Group& made);

  const Problem* problem_;
  const FusedTime* fused_;
  std::vector<std::shared_ptr<const Group>> groups_;  // at first one for each kernel
  std::vector<int32_t> owner_;                        // by kernel
  std::vector<std::pair<int32_t, int32_t>> copies_;  // kernel, group that has it for itself; sorted
  std::vector<int32_t> bucket_;                      // by reduction
};

}  // namespace dc::fusion
