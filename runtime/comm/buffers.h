// What the backends share about the buffers of a collective: ranges of ranks, checks, and how many
// bytes a rank sends.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/comm/communicator.h"
#include "src/base/status.h"

namespace dc::runtime::comm {

enum class Operation : uint8_t {
  Barrier,
  AllGather,
  ReduceScatter,
  AllReduce,
  Broadcast,
  Exchange,
  Open,
  Allocate,
  Connect,
};
std::string_view name(Operation operation);

// Valid elements that `rank` owns.
inline int64_t owned_elements(const CollectiveBuffer& buffer, int rank) {
  return std::clamp<int64_t>(buffer.elements - rank * buffer.shard, 0, buffer.shard);
}

// Address of an element of a value; `bytes` is the size of an element.
inline std::byte* element(void* data, int64_t index, int64_t bytes) {
  return static_cast<std::byte*>(data) + index * bytes;
}

// Zeros behind the last element of a reduce_scatter's output.
inline void zero_tail(const CollectiveBuffer& b, int rank, device::Stream& stream) {
  const int64_t owned = owned_elements(b, rank);
  if (owned < b.shard) {
    stream.fill(element(b.output.data, owned, 4), std::byte{0}, (b.shard - owned) * 4);
  }
}

// Buffers where the host's cores find them while a collective of the stream runs. Where that is
// where they are, they are returned as they came and nothing is allocated.
class ResolvedBuffers {
 public:
  std::span<const CollectiveBuffer> operator()(std::span<const CollectiveBuffer> buffers,
                                               const device::Stream& stream);

 private:
  std::vector<CollectiveBuffer> moved_;
};

// Internal (our bug) when the buffers cannot be right: sizes, dtypes, overlaps that would let a
// rank overwrite what a peer reads.
base::Status check_buffers(Operation operation, std::span<const CollectiveBuffer> buffers, int rank,
                           int size);

// Equal on ranks that call the same collective on the same values; the low byte is the operation.
uint64_t fingerprint(Operation operation, std::span<const CollectiveBuffer> buffers);
uint64_t fingerprint(Operation operation, int64_t bytes, int root);
inline Operation operation_of(uint64_t fingerprint) {
  return static_cast<Operation>(fingerprint & 0xff);
}

// What backends say when ranks do not act together.
base::Status ranks_disagree(uint64_t mine, int my_rank, uint64_t theirs, int their_rank);  // DC6102
// DC6103; `ranks` is not empty. `arrived`: they called the collective, but did not finish.
base::Status ranks_late(Operation operation, std::chrono::milliseconds timeout,
                        std::span<const int> ranks, bool arrived);
base::Status called_off(Operation operation);  // DC6105
// A control message of a communicator that has none (DC6101).
base::Status only_for_devices(Operation operation);

// Bytes sent so far. Written by the communication stream, read by any thread.
class TrafficCounter {
 public:
  // `on_other_hosts`: by member (members.h).
  explicit TrafficCounter(std::vector<bool> on_other_hosts = {})
      : on_other_hosts_(std::move(on_other_hosts)) {}
  void add(Operation operation, std::span<const CollectiveBuffer> buffers, int rank, int size);
  void add_other(int64_t bytes) { other_.fetch_add(bytes, std::memory_order_relaxed); }
  Traffic snapshot() const;

 private:
  int64_t across_hosts(Operation operation, const CollectiveBuffer& buffer, int rank) const;
  std::vector<bool> on_other_hosts_;
  std::atomic<int64_t> all_gather_{0}, reduce_scatter_{0}, all_reduce_{0}, other_{0},
      across_hosts_{0};
};

// Collective: all ranks must ask for slabs of one size. Mismatch (76) naming the rank otherwise.
base::Status check_equal_slabs(Communicator& control, int64_t bytes);

}  // namespace dc::runtime::comm
