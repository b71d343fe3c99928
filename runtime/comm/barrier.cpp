#include "runtime/comm/barrier.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "runtime/comm/patience.h"

namespace dc::runtime::comm {
namespace {

// Pauses before a rank sleeps. Where ranks outnumber cores, the one waited for may need this core.
// Otherwise a few microseconds more spare the wake-up, which costs ten times a small collective.
constexpr int kSpinsOnSharedCores = 50, kSpinsOnOwnCore = 500;

// Then a rank yields for this long, so that no idle core has to be woken (README.md has figures).
constexpr int64_t kYieldNs = 100'000;
// A thread that is no peer may keep the core for a whole slice of the scheduler, longer than waking
// a rank that sleeps takes. So after a yield of more than kLongYieldNs none follows for kRestNs.
constexpr int64_t kLongYieldNs = 1'000'000, kRestNs = 100'000'000;

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

uint32_t generation_of(uint32_t word) { return word / kGeneration; }

}  // namespace

Barrier::Barrier(ControlPage page, int group, Members members, std::chrono::milliseconds timeout)
    : page_(page),
      group_(group),
      members_(std::move(members)),
      timeout_(timeout),
      spins_(page.world() <= sysconf(_SC_NPROCESSORS_ONLN) ? kSpinsOnOwnCore
                                                           : kSpinsOnSharedCores) {}

base::Status Barrier::wait(uint64_t fingerprint) {
  if (!failure_.ok()) return failure_;
  const Operation operation = operation_of(fingerprint);
  if (base::Status status = reason_to_give_up(operation); !status.ok())
    return fail(std::move(status));

  GroupRecord& group = record();
  ArrivalRecord& mine = page_.arrival(group_, members_.own());
  mine.core.store(sched_getcpu(), std::memory_order_relaxed);
  mine.fingerprints[count_ & 1].store(fingerprint, std::memory_order_relaxed);
  mine.count.store(count_ + 1, std::memory_order_release);
  const uint32_t generation = generation_of(group.word.load());
  if (group.arrived.fetch_add(1) + 1 == static_cast<uint32_t>(members_.size())) {
    group.arrived.store(0);
    group.word.fetch_add(kGeneration);
    if (group.sleepers.load() > 0) futex_wake_all(group.word);
  } else if (base::Status status = sleep_until_complete(generation, operation); !status.ok()) {
    return fail(std::move(status));
  }
  if (base::Status status = compare(fingerprint); !status.ok()) return fail(std::move(status));
  ++count_;
  return base::ok_status();
}

void Barrier::abort() {
  aborted_.store(true);
  page_.nudge(group_, members_.at(0));
}

base::Status Barrier::fail(base::Status status) {
  failure_ = std::move(status);
  return failure_;
}

base::Status Barrier::sleep_until_complete(uint32_t generation, Operation operation) {
  GroupRecord& group = record();
  for (int i = 0; i < spins_; ++i) {
    if (generation_of(group.word.load(std::memory_order_acquire)) != generation)
      return base::ok_status();
    pause_briefly();
  }
  if (yield_until_complete(generation)) return base::ok_status();
  Patience patience(timeout_);
  group.sleepers.fetch_add(1);
  base::Status status;
  for (bool in_time = true;;) {
    const uint32_t seen = group.word.load();
    // A rank leaves only after it saw the barrier complete. So the reason to give up is read first
    // and the generation after it: a peer that has left means that the generation has changed.
    base::Status reason = reason_to_give_up(operation);
    if (generation_of(group.word.load()) != generation) break;
    if (reason.ok() && !in_time) reason = missing(operation);
    if (!reason.ok()) {
      status = std::move(reason);
      break;
    }
    futex_wait(group.word, seen, patience.next_look());
    in_time = !patience.is_over();
  }
  group.sleepers.fetch_sub(1);
  return status;
}

bool Barrier::yield_until_complete(uint32_t generation) {
  const int64_t start = monotonic_ns();
  for (int64_t now = start; now >= no_yield_before_ns_ && now - start < kYieldNs;) {
    sched_yield();
    const bool complete = generation_of(record().word.load()) != generation;
    const int64_t took = monotonic_ns() - now;
    now += took;
    if (took > kLongYieldNs && !shares_core()) no_yield_before_ns_ = now + kRestNs;
    if (complete) return true;
  }
  return false;
}

bool Barrier::shares_core() const {
  const int32_t core = sched_getcpu();
  return std::any_of(members_.ranks.begin(), members_.ranks.end(), [&](int rank) {
    return rank != members_.own() && page_.arrival(group_, rank).core.load() == core;
  });
}

base::Status Barrier::reason_to_give_up(Operation operation) const {
  if (aborted_.load()) return called_off(operation);
  if (!page_.anyone_gone()) return base::ok_status();
  if (const auto rank = page_.first_failure()) return page_.gone(*rank, name(operation));
  for (const int rank : members_.ranks) {
    if (page_.left(rank)) return page_.gone(rank, name(operation));
  }
  return base::ok_status();
}

base::Status Barrier::missing(Operation operation) const {
  std::vector<int> ranks;
  for (const int rank : members_.ranks) {
    if (page_.arrival(group_, rank).count.load(std::memory_order_acquire) == count_ + 1) continue;
    ranks.push_back(rank);
  }
  return ranks_late(operation, timeout_, ranks, false);
}

base::Status Barrier::compare(uint64_t fingerprint) const {
  for (const int rank : members_.ranks) {
    const uint64_t theirs =
        page_.arrival(group_, rank).fingerprints[count_ & 1].load(std::memory_order_relaxed);
    if (theirs == fingerprint) continue;
    return ranks_disagree(fingerprint, members_.own(), theirs, rank);
  }
  return base::ok_status();
}

}  // namespace dc::runtime::comm
