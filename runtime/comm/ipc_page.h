// The memory of the host through which GPUs of its ranks wait for each other: all ranks map it, and
// their streams write and wait for numbers there. Zero-filled memory is a valid page on which
// nothing happened yet.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace dc::runtime::comm {

inline constexpr int kMaxIpcLinks = 64;  // times that communicators are opened in a job

// GaveUp: from then on what its GPU does is not to be believed, also where its numbers come.
enum class IpcState : uint32_t { Running = 0, Left = 1, GaveUp = 2 };

class IpcPage {
 public:
  IpcPage(std::byte* base, int world) : base_(base), world_(world) {}
  static int64_t bytes(int world) {
    return int64_t{4} * world * (1 + int64_t{kMaxIpcLinks} * world);
  }
  int world() const { return world_; }

  IpcState state(int rank) const {
    return static_cast<IpcState>(std::atomic_ref(*word(rank)).load());
  }
  // The first end of a rank stays.
  void set_state(int rank, IpcState state) const {
    uint32_t running = 0;
    std::atomic_ref(*word(rank)).compare_exchange_strong(running, static_cast<uint32_t>(state));
  }
  // The last barrier that `sender` has reached in the communicator of a place. The sender's streams
  // write it for this receiver alone, whose streams wait for it. So a receiver can release its own
  // streams and no other's.
  uint32_t* number(int place, int receiver, int sender) const {
    return word((1 + place * world_ + receiver) * world_ + sender);
  }

 private:
  uint32_t* word(int index) const { return reinterpret_cast<uint32_t*>(base_) + index; }

  std::byte* base_;
  int world_;
};

}  // namespace dc::runtime::comm
