#include "src/fusion/draft.h"

#include <algorithm>
#include <iterator>

#include "src/fusion/draws.h"

namespace dc::fusion {
namespace {

std::vector<int32_t> both(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  std::vector<int32_t> all;
  std::ranges::set_union(a, b, std::back_inserter(all));
  return all;
}

void make_set(std::vector<int32_t>& list) {
  std::ranges::sort(list);
  const auto rest = std::ranges::unique(list);
  list.erase(rest.begin(), rest.end());
}

}  // namespace

bool Group::has(int32_t kernel) const {
  if (kernel < members.front() || kernel > members.back()) return false;
  return members.size() < 8 ? std::ranges::find(members, kernel) != members.end()
                            : std::ranges::binary_search(members, kernel);
}

Draft::Draft(const Problem& problem, const FusedTime& fused) : problem_(&problem), fused_(&fused) {
  const auto count = static_cast<int32_t>(problem.kernels.size());
  groups_.resize(problem.kernels.size());
  for (int32_t i = 0; i < count; ++i) owner_.push_back(i);
  for (int32_t i = 0; i < count; ++i) {
    Group made;
    made.members = made.own = {i};
    describe(made);
    groups_[static_cast<size_t>(i)] = std::make_shared<const Group>(std::move(made));
  }
  for (size_t i = 0; i < problem.reductions.size(); ++i) bucket_.push_back(static_cast<int32_t>(i));
}

std::vector<std::pair<int32_t, int32_t>>::const_iterator Draft::first_copy(int32_t kernel) const {
  return std::ranges::lower_bound(copies_, std::pair{kernel, int32_t{-1}});
}

bool Draft::is_read_outside(int32_t kernel, int32_t group, const Group& members) const {
  for (const int32_t made : problem_->kernel(kernel).makes) {
    if (problem_->value(made).kept) return true;
  }
  bool read = problem_->kernel(kernel).makes.empty();
  for (const int32_t reader : problem_->readers(kernel)) {
    each_home(reader, [&](int32_t home) {
      const Group& other = home == group ? members : *groups_[static_cast<size_t>(home)];
      read |= !other.has(kernel);
    });
    if (read) return true;
  }
  return read;
}

bool Draft::fuse(int32_t earlier, int32_t later, bool duplicate) {
  if (earlier == later) return false;
  const std::shared_ptr<const Group> first = groups_[static_cast<size_t>(earlier)],
                                     second = groups_[static_cast<size_t>(later)];
  if (first == nullptr || second == nullptr) return false;
  const int32_t kind = problem_->kernel(first->members.front()).kind;
  if (kind < 0 || kind != problem_->kernel(second->members.front()).kind) return false;
  const std::vector<int32_t> before = read_from(later);
  if (!std::ranges::binary_search(before, earlier)) return false;
  Draft next = *this;
  auto made = std::make_shared<Group>();
  made->members = both(first->members, second->members);
  made->own = duplicate ? second->own : both(first->own, second->own);
  next.groups_[static_cast<size_t>(later)] = made;
  next.set_copies(later, *made);
  std::vector<int32_t> changed = read_from(earlier);
  changed.insert(changed.end(), before.begin(), before.end());
  if (!duplicate) {
    for (const int32_t kernel : first->own) next.owner_[static_cast<size_t>(kernel)] = later;
    next.groups_[static_cast<size_t>(earlier)] = nullptr;
    std::erase_if(next.copies_, [&](const auto& copy) { return copy.second == earlier; });
  }
  changed.push_back(later);
  next.refresh(std::move(changed));
  if (!next.may_be_one(*next.groups_[static_cast<size_t>(later)])) return false;
  // A copy waits for nothing that its reader does not wait for, unless it comes before something
  // for another reason.
  const bool may_close = !duplicate || std::ranges::any_of(first->members, [&](int32_t member) {
    return !problem_->followers(member).empty();
  });
  if (may_close && next.is_on_cycle(later)) return false;
  *this = std::move(next);
  return true;
}

bool Draft::merge(int32_t a, int32_t b) {
  const int32_t keep = std::min(bucket(a), bucket(b)), gone = std::max(bucket(a), bucket(b));
  const auto kind = [&](int32_t reduction) {
    return problem_->reductions[static_cast<size_t>(reduction)].kind;
  };
  if (keep == gone || kind(a) != kind(b)) return false;
  for (int32_t& bucket : bucket_) {
    if (bucket == gone) bucket = keep;
  }
  return true;
}

bool Draft::may_be_one(const Group& group) const {
  const Limits& limits = problem_->limits;
  if (limits.most_operations > 0 && group.members.size() > limits.most_operations) return false;
  if (limits.most_tensors > 0 && group.operands.size() + group.results.size() > limits.most_tensors)
    return false;
  for (const int32_t member : group.members) {
    const Kernel& kernel = problem_->kernel(member);
    for (const int32_t read : kernel.reads) {
      const int32_t maker = problem_->maker(read);
      if (problem_->value(read).root != read && maker >= 0 && group.has(maker)) return false;
    }
    for (const int32_t earlier : kernel.after) {
      if (group.has(earlier)) return false;
    }
  }
  return true;
}

bool Draft::is_on_cycle(int32_t group) const {
  std::vector<bool> seen(groups_.size());
  std::vector<int32_t> open{group};
  bool found = false;
  while (!open.empty() && !found) {
    const int32_t from = open.back();
    open.pop_back();
    each_successor(from, [&](int32_t to) {
      found |= to == group;
      if (seen[static_cast<size_t>(to)]) return;
      seen[static_cast<size_t>(to)] = true;
      open.push_back(to);
    });
  }
  return found;
}

std::vector<int32_t> Draft::read_from(int32_t group) const {
  std::vector<int32_t> from;
  for (const int32_t value : groups_[static_cast<size_t>(group)]->operands) {
    const int32_t maker = problem_->maker(value);
    if (maker >= 0 && owner(maker) >= 0 && owner(maker) != group) from.push_back(owner(maker));
  }
  make_set(from);
  return from;
}

bool Draft::drop_unneeded(int32_t group, Group& made, std::vector<int32_t>& changed) {
  bool dropped = false;
  for (size_t i = made.members.size(); i-- > 0;) {
    const int32_t member = made.members[i];
    const auto own = std::ranges::find(made.own, member);
    const bool is_read_here = std::ranges::any_of(problem_->readers(member), [&](int32_t reader) {
      return std::ranges::binary_search(made.members, reader);
    });
    const bool is_read_there = own != made.own.end() && is_read_outside(member, group, made);
    if (is_read_there) continue;
    if (own != made.own.end()) {
      made.own.erase(own);
      owner_[static_cast<size_t>(member)] = -1;
      dropped = true;
    }
    if (is_read_here) continue;
    for (const int32_t read : problem_->kernel(member).reads) {
      const int32_t maker = problem_->maker(read);
      if (maker >= 0 && owner(maker) >= 0) changed.push_back(owner(maker));
    }
    made.members.erase(made.members.begin() + static_cast<std::ptrdiff_t>(i));
    dropped = true;
    if (made.members.empty()) break;
  }
  return dropped;
}

void Draft::refresh(std::vector<int32_t> changed) {
  while (!changed.empty()) {
    const int32_t group = changed.back();
    changed.pop_back();
    const std::shared_ptr<const Group> old = groups_[static_cast<size_t>(group)];
    if (old == nullptr) continue;
    auto made = std::make_shared<Group>(*old);
    if (drop_unneeded(group, *made, changed)) {
      // Whether others need what it has dropped or no longer shows follows from the new members.
      set_copies(group, *made);
      if (made->members.empty()) {
        groups_[static_cast<size_t>(group)] = nullptr;
        continue;
      }
      groups_[static_cast<size_t>(group)] = made;
    }
    describe(*made);
    groups_[static_cast<size_t>(group)] = std::move(made);
  }
}

void Draft::describe(Group& made) const {
  made.operands.clear();
  made.results.clear();
  made.hash = 0;
  for (const int32_t member : made.members) {
    for (const int32_t read : problem_->kernel(member).reads) {
      const int32_t maker = problem_->maker(read);
      if (maker < 0 || !made.has(maker)) made.operands.push_back(read);
    }
    made.hash += mixed(static_cast<uint64_t>(member) * 2);
  }
  make_set(made.operands);
  for (const int32_t kernel : made.own) {
    made.hash += mixed(static_cast<uint64_t>(kernel) * 2 + 1);
    for (const int32_t value : problem_->kernel(kernel).makes) made.results.push_back(value);
  }
  std::ranges::sort(made.results);
  made.hash = mixed(made.hash);
  if (made.members.size() == 1) {
    made.time = problem_->kernel(made.members[0]).time;
  } else {
    made.time = fused_->time({*problem_, made.members, made.operands, made.results});
  }
}

void Draft::set_copies(int32_t group, const Group& made) {
  std::erase_if(copies_, [&](const auto& copy) { return copy.second == group; });
  std::vector<int32_t> copied;
  std::ranges::set_difference(made.members, made.own, std::back_inserter(copied));
  for (const int32_t kernel : copied) copies_.emplace_back(kernel, group);
  std::ranges::sort(copies_);
}

uint64_t Draft::hash() const {
  uint64_t sum = 0;
  for (const std::shared_ptr<const Group>& group : groups_) {
    if (group != nullptr) sum += group->hash;
  }
  for (size_t i = 0; i < bucket_.size(); ++i)
    sum += mixed(~(static_cast<uint64_t>(bucket_[i]) << 32 | i));
  return mixed(sum);
}

}  // namespace dc::fusion
