#include "src/fusion/draft.h"

#include <algorithm>
#include <iterator>
#include <utility>

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
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

std::vector<bool> marked(const std::vector<int32_t>& list, size_t count) {
  std::vector<bool> marks(count);
  for (const int32_t item : list) marks[static_cast<size_t>(item)] = true;
  return marks;
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
  order_ = place_ = owner_;
  first_copy_.resize(problem.kernels.size() + 1);
}

bool Draft::has_copy(int32_t group, int32_t kernel) const {
  const auto copies = copies_of(kernel);
  return !copies.empty() && std::ranges::binary_search(copies, std::pair{kernel, group});
}

bool Draft::reads_from(int32_t group, int32_t earlier) const {
  bool reads = false;
  each_read_from(group, [&](int32_t from) { reads |= from == earlier; });
  return reads;
}

bool Draft::is_read_outside(int32_t kernel, int32_t group, const std::vector<bool>& members) const {
  for (const int32_t made : problem_->kernel(kernel).makes) {
    if (problem_->value(made).kept) return true;
  }
  bool read = problem_->kernel(kernel).makes.empty();
  for (const int32_t reader : problem_->readers(kernel)) {
    each_home(reader, [&](int32_t home) {
      read |= home == group ? !members[static_cast<size_t>(kernel)] : !has_copy(home, kernel);
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
  if (!reads_from(later, earlier)) return false;
  auto made = std::make_shared<Group>();
  made->members = both(first->members, second->members);
  made->own = duplicate ? second->own : both(first->own, second->own);
  // Of what it makes for itself others may have made some for it alone.
  std::vector<int32_t> changed;
  for (const int32_t member : made->members) {
    if (owner(member) >= 0 && owner(member) != later) changed.push_back(owner(member));
  }
  make_set(changed);
  changed.push_back(later);
  Undo undo;
  const Copies copies = copies_;
  const std::vector<int32_t> first_copy = first_copy_;
  set_copies(later, second.get(), made.get());
  set_group(later, made, undo);
  if (!duplicate) {
    for (const int32_t kernel : first->own) set_owner(kernel, later, undo);
    set_copies(earlier, first.get(), nullptr);
    set_group(earlier, nullptr, undo);
  }
  refresh(later, std::move(changed), undo);
  if (may_be_one(*groups_[static_cast<size_t>(later)]) && put_in_order(later)) return true;
  take_back(undo);
  copies_ = copies;
  first_copy_ = first_copy;
  return false;
}

void Draft::set_group(int32_t group, std::shared_ptr<const Group> made, Undo& undo) {
  std::shared_ptr<const Group>& at = groups_[static_cast<size_t>(group)];
  undo.groups.emplace_back(group, std::exchange(at, std::move(made)));
}

void Draft::set_owner(int32_t kernel, int32_t group, Undo& undo) {
  undo.owners.emplace_back(kernel, std::exchange(owner_[static_cast<size_t>(kernel)], group));
}

void Draft::take_back(Undo& undo) {
  for (; !undo.groups.empty(); undo.groups.pop_back())
    groups_[static_cast<size_t>(undo.groups.back().first)] = std::move(undo.groups.back().second);
  for (; !undo.owners.empty(); undo.owners.pop_back())
    owner_[static_cast<size_t>(undo.owners.back().first)] = undo.owners.back().second;
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

bool Draft::put_in_order(int32_t group) {
  const int32_t last = place_[static_cast<size_t>(group)];
  // Every edge but its new ones leads to a later place, so nothing behind it leads to it.
  std::vector<bool> seen;  // by place
  std::vector<int32_t> open{group};
  int32_t first = last;
  bool found = false;
  while (!open.empty() && !found) {
    const int32_t from = open.back();
    open.pop_back();
    each_successor(from, [&](int32_t to) {
      found |= to == group;
      const int32_t place = place_[static_cast<size_t>(to)];
      if (place >= last) return;
      if (seen.empty()) seen.resize(static_cast<size_t>(last));
      if (seen[static_cast<size_t>(place)]) return;
      seen[static_cast<size_t>(place)] = true;
      first = std::min(first, place);
      open.push_back(to);
    });
  }
  if (found || first == last) return !found;
  std::vector<int32_t> behind;
  int32_t next = first;
  const auto put = [&](int32_t at) {
    order_[static_cast<size_t>(next)] = at;
    place_[static_cast<size_t>(at)] = next++;
  };
  for (int32_t place = first; place <= last; ++place) {
    const int32_t at = order_[static_cast<size_t>(place)];
    if (place < last && seen[static_cast<size_t>(place)]) {
      behind.push_back(at);
    } else {
      put(at);
    }
  }
  for (const int32_t at : behind) put(at);
  return true;
}

std::vector<int32_t> Draft::read_from(int32_t group) const {
  std::vector<int32_t> from;
  each_read_from(group, [&](int32_t earlier) { from.push_back(earlier); });
  make_set(from);
  return from;
}

bool Draft::drop_unneeded(int32_t group, Group& made, std::vector<int32_t>& changed, Undo& undo) {
  std::vector<bool> here = marked(made.members, owner_.size()),
                    own = marked(made.own, owner_.size());
  bool dropped = false;
  for (size_t i = made.members.size(); i-- > 0;) {
    const int32_t member = made.members[i];
    if (own[static_cast<size_t>(member)]) {
      if (is_read_outside(member, group, here)) continue;
      own[static_cast<size_t>(member)] = false;
      set_owner(member, -1, undo);
      dropped = true;
    }
    const auto is_here = [&](int32_t reader) { return here[static_cast<size_t>(reader)]; };
    if (std::ranges::any_of(problem_->readers(member), is_here)) continue;
    for (const int32_t read : problem_->kernel(member).reads) {
      const int32_t maker = problem_->maker(read);
      if (maker >= 0 && owner(maker) >= 0) changed.push_back(owner(maker));
    }
    here[static_cast<size_t>(member)] = false;
    dropped = true;
  }
  if (!dropped) return false;
  std::erase_if(made.members, [&](int32_t kernel) { return !here[static_cast<size_t>(kernel)]; });
  std::erase_if(made.own, [&](int32_t kernel) { return !own[static_cast<size_t>(kernel)]; });
  return true;
}

void Draft::refresh(int32_t fused, std::vector<int32_t> changed, Undo& undo) {
  while (!changed.empty()) {
    const int32_t group = changed.back();
    changed.pop_back();
    const std::shared_ptr<const Group> old = groups_[static_cast<size_t>(group)];
    if (old == nullptr) continue;
    auto made = std::make_shared<Group>(*old);
    const size_t known = changed.size();
    const bool dropped = drop_unneeded(group, *made, changed, undo);
    if (!dropped && group != fused) continue;
    std::sort(changed.begin() + static_cast<std::ptrdiff_t>(known), changed.end());
    changed.erase(std::unique(changed.begin() + static_cast<std::ptrdiff_t>(known), changed.end()),
                  changed.end());
    // Whether others need what it has dropped or no longer shows follows from the new members.
    if (dropped) set_copies(group, old.get(), made.get());
    if (made->members.empty()) {
      set_group(group, nullptr, undo);
      continue;
    }
    describe(*made);
    set_group(group, std::move(made), undo);
  }
}

void Draft::describe(Group& made) const {
  made.operands.clear();
  made.results.clear();
  made.hash = 0;
  const std::vector<bool> here = marked(made.members, owner_.size());
  for (const int32_t member : made.members) {
    for (const int32_t read : problem_->kernel(member).reads) {
      const int32_t maker = problem_->maker(read);
      if (maker < 0 || !here[static_cast<size_t>(maker)]) made.operands.push_back(read);
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

void Draft::set_copies(int32_t group, const Group* before, const Group* after) {
  const auto copied = [](const Group* of) {
    std::vector<int32_t> kernels;
    if (of != nullptr)
      std::ranges::set_difference(of->members, of->own, std::back_inserter(kernels));
    return kernels;
  };
  const std::vector<int32_t> had = copied(before), has = copied(after);
  if (had == has) return;
  std::erase_if(copies_, [&](const auto& copy) { return copy.second == group; });
  const auto old = static_cast<std::ptrdiff_t>(copies_.size());
  for (const int32_t kernel : has) copies_.emplace_back(kernel, group);
  std::ranges::inplace_merge(copies_, copies_.begin() + old);
  size_t kernel = 0;
  for (size_t i = 0; i < copies_.size(); ++i) {
    while (kernel <= static_cast<size_t>(copies_[i].first))
      first_copy_[kernel++] = static_cast<int32_t>(i);
  }
  while (kernel < first_copy_.size()) first_copy_[kernel++] = static_cast<int32_t>(copies_.size());
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
