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
  // By reduction: the lowest of its bucket. Those of a bucket must be of one kind.
  void set_buckets(std::vector<int32_t> buckets) { bucket_ = std::move(buckets); }

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
          if (home != group && !has_copy(home, kernel)) what(home);
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
  // Calls what(group) for each of them, some more than once.
  template <typename What>
  void each_read_from(int32_t group, const What& what) const {
    for (const int32_t value : groups_[static_cast<size_t>(group)]->operands) {
      const int32_t maker = problem_->maker(value);
      if (maker >= 0 && owner(maker) >= 0 && owner(maker) != group) what(owner(maker));
    }
  }

  uint64_t hash() const;

 private:
  // What a change replaced, to take it back.
  struct Undo {
    std::vector<std::pair<int32_t, std::shared_ptr<const Group>>> groups;
    std::vector<std::pair<int32_t, int32_t>> owners;
  };
  using Copies = std::vector<std::pair<int32_t, int32_t>>;

  template <typename What>
  void each_home(int32_t kernel, const What& what) const {
    if (owner(kernel) >= 0) what(owner(kernel));
    for (const auto& copy : copies_of(kernel)) what(copy.second);
  }
  std::span<const Copies::value_type> copies_of(int32_t kernel) const {
    const auto first = first_copy_.begin() + kernel;
    return {copies_.begin() + first[0], copies_.begin() + first[1]};
  }
  bool has_copy(int32_t group, int32_t kernel) const;
  bool reads_from(int32_t group, int32_t earlier) const;
  // `members`: of the group, by kernel.
  bool is_read_outside(int32_t kernel, int32_t group, const std::vector<bool>& members) const;
  bool may_be_one(const Group& group) const;
  // After `group` got new successors: those that have an earlier place, and what waits for them,
  // move behind it. False, with nothing changed, if it would wait for itself. The walk stays
  // between the places of the first of them and of `group` (as Pearce and Kelly 2006 bound it).
  bool put_in_order(int32_t group);
  // Drops members that nothing needs any more, of the changed groups and of those that this
  // changes too, and works out what follows from the members; of `fused` in any case.
  void refresh(int32_t fused, std::vector<int32_t> changed, Undo& undo);
  bool drop_unneeded(int32_t group, Group& made, std::vector<int32_t>& changed, Undo& undo);
  void describe(Group& made) const;
  void set_group(int32_t group, std::shared_ptr<const Group> made, Undo& undo);
  void set_owner(int32_t kernel, int32_t group, Undo& undo);
  // `before` and `after`: what the group was and is; null: not there.
  void set_copies(int32_t group, const Group* before, const Group* after);
  void take_back(Undo& undo);

  const Problem* problem_;
  const FusedTime* fused_;
  std::vector<std::shared_ptr<const Group>> groups_;  // at first one for each kernel
  std::vector<int32_t> owner_;                        // by kernel
  Copies copies_;                    // kernel, group that has it for itself; sorted
  std::vector<int32_t> first_copy_;  // by kernel, and the end: in copies_
  std::vector<int32_t> bucket_;      // by reduction
  // Groups, also those that are gone, so that each comes after what it waits for; the place of
  // each in there.
  std::vector<int32_t> order_, place_;
};

}  // namespace dc::fusion
