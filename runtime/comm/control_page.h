// The control page: the memory through which the ranks of one host know of each other. Who is
// alive, who left and why, one area per communicator with its barrier and mailboxes. Zero-filled
// memory is a valid page on which nothing happened yet.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "src/base/status.h"

namespace dc::runtime::comm {

inline constexpr int kMaxGroups = 64;         // times that communicators are opened in a job
inline constexpr int64_t kMailbox = 4096;     // bytes; larger control messages go in pieces
inline constexpr uint32_t kGeneration = 256;  // one completed barrier in GroupRecord::word

enum class RankState : uint32_t { Running = 0, Left = 1, Failed = 2, Died = 3 };

struct alignas(64) RankRecord {
  std::atomic<uint32_t> state;
  std::atomic<int32_t> pid;
  char reason[248];  // why it failed; written before `state`
};

// `word` is the futex: the generation in the upper 24 bits, in the lower 8 a counter of other
// events that waiters must look at.
struct alignas(64) GroupRecord {
  std::atomic<uint32_t> word, arrived, sleepers;
};

struct alignas(64) ArrivalRecord {
  std::atomic<uint32_t> count;            // barriers this rank arrived at
  std::atomic<int32_t> core;              // on which it arrived last
  std::atomic<uint64_t> fingerprints[2];  // of the current and the previous one
};

class ControlPage {
 public:
  ControlPage(std::byte* base, int world) : base_(base), world_(world) {}
  static int64_t bytes(int world);
  int world() const { return world_; }

  RankRecord& rank(int rank) const;
  // Opening `group` makes communicators of disjoint ranks; each has the record of its first rank.
  GroupRecord& group(int group, int first_rank) const;
  ArrivalRecord& arrival(int group, int rank) const;
  std::byte* mailbox(int group, int rank) const;

  // Marks a running rank; the first failure of the job stays the one that is named. All waiters
  // look again. `why` may be success.
  void record_death(int rank) const;
  void record_leave(int rank, const base::Status& why) const;
  // Makes the waiters of one communicator look again.
  void nudge(int group, int first_rank) const;

  bool anyone_gone() const;                  // left, failed or died
  std::optional<int> first_failure() const;  // the rank that failed or died first
  bool left(int rank) const;                 // not running any more
  // PeerDied that names `rank`. `doing`: what this rank was in, for example "reduce_scatter".
  base::Status gone(int rank, std::string_view doing) const;

 private:
  void announce(int rank, RankState state, std::string_view reason) const;
  std::byte* base_;
  int world_;
};

// Sleeps until the word differs from `seen`, a wake, or the deadline (nanoseconds of the monotonic
// clock).
void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, int64_t deadline_ns);
void futex_wake_all(std::atomic<uint32_t>& word);
int64_t monotonic_ns();

}  // namespace dc::runtime::comm
