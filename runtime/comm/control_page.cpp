#include "runtime/comm/control_page.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "src/base/units.h"

namespace dc::runtime::comm {
namespace {

static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);
static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(std::atomic<uint64_t>) == 8);

struct alignas(64) PageHeader {
  std::atomic<uint32_t> failed;  // 1 + the rank that failed first
  std::atomic<uint32_t> gone;    // ranks no longer running
};

constexpr int64_t kPage = 4096;

int64_t group_bytes(int world) {
  const auto records = static_cast<int64_t>(sizeof(GroupRecord) + sizeof(ArrivalRecord));
  return base::round_up(world * records, kPage) + world * kMailbox;
}

int64_t groups_offset(int world) {
  return base::round_up(
      static_cast<int64_t>(sizeof(PageHeader)) + world * static_cast<int64_t>(sizeof(RankRecord)),
      kPage);
}

PageHeader& header(std::byte* base) { return *reinterpret_cast<PageHeader*>(base); }

}  // namespace

int64_t ControlPage::bytes(int world) {
  return groups_offset(world) + kMaxGroups * group_bytes(world);
}

RankRecord& ControlPage::rank(int rank) const {
  return reinterpret_cast<RankRecord*>(base_ + sizeof(PageHeader))[rank];
}

GroupRecord& ControlPage::group(int group, int first_rank) const {
  return reinterpret_cast<GroupRecord*>(base_ + groups_offset(world_) +
                                        group * group_bytes(world_))[first_rank];
}

ArrivalRecord& ControlPage::arrival(int group, int rank) const {
  return reinterpret_cast<ArrivalRecord*>(&this->group(group, world_))[rank];
}

std::byte* ControlPage::mailbox(int group, int rank) const {
  return base_ + groups_offset(world_) + (group + 1) * group_bytes(world_) -
         (world_ - rank) * kMailbox;
}

void ControlPage::announce(int rank, RankState state, std::string_view reason) const {
  RankRecord& record = this->rank(rank);
  uint32_t running = static_cast<uint32_t>(RankState::Running);
  if (state == RankState::Failed) {
    const size_t length = std::min(reason.size(), sizeof(record.reason) - 1);
    std::memcpy(record.reason, reason.data(), length);
    record.reason[length] = 0;
  }
  if (!record.state.compare_exchange_strong(running, static_cast<uint32_t>(state))) return;
  if (state != RankState::Left) {
    uint32_t none = 0;
    header(base_).failed.compare_exchange_strong(none, static_cast<uint32_t>(rank) + 1);
  }
  header(base_).gone.fetch_add(1);
  for (int group = 0; group < kMaxGroups; ++group) {
    for (int first = 0; first < world_; ++first) nudge(group, first);
  }
}

void ControlPage::record_death(int rank) const { announce(rank, RankState::Died, ""); }

void ControlPage::record_leave(int rank, const base::Status& why) const {
  announce(rank, why.ok() ? RankState::Left : RankState::Failed, why.ok() ? "" : why.sentence());
}

void ControlPage::nudge(int group, int first_rank) const {
  GroupRecord& record = this->group(group, first_rank);
  uint32_t seen = record.word.load();
  while (!record.word.compare_exchange_weak(seen, (seen & ~0xffu) | ((seen + 1) & 0xffu))) {
  }
  if (record.sleepers.load() > 0) futex_wake_all(record.word);
}

bool ControlPage::anyone_gone() const { return header(base_).gone.load() != 0; }

std::optional<int> ControlPage::first_failure() const {
  const uint32_t failed = header(base_).failed.load();
  if (failed == 0) return std::nullopt;
  return static_cast<int>(failed) - 1;
}

bool ControlPage::left(int rank) const {
  return this->rank(rank).state.load() != static_cast<uint32_t>(RankState::Running);
}

base::Status ControlPage::gone(int rank, std::string_view doing) const {
  const RankRecord& record = this->rank(rank);
  const auto state = static_cast<RankState>(record.state.load());
  std::string sentence = "rank " + std::to_string(rank);
  if (const int32_t pid = record.pid.load(); pid > 0)
    sentence += " (process " + std::to_string(pid) + ")";
  if (state == RankState::Died) {
    sentence += " died";
  } else {
    sentence += " left before the others were done";
  }
  if (!doing.empty()) sentence += " while this rank was in " + std::string(doing);
  if (state == RankState::Failed) sentence += "; it said: " + std::string(record.reason);
  if (state == RankState::Died)
    sentence += "; look for that rank's own last message and start the job again";
  return base::Status(base::ErrorKind::PeerDied, "DC6104", std::move(sentence));
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, int64_t deadline_ns) {
  timespec deadline{};
  deadline.tv_sec = deadline_ns / 1'000'000'000;
  deadline.tv_nsec = deadline_ns % 1'000'000'000;
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_BITSET, seen, &deadline,
          nullptr, FUTEX_BITSET_MATCH_ANY);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000ll + now.tv_nsec;
}

}  // namespace dc::runtime::comm
