// Communicator: one group of ranks and its collectives, which are issued to a stream. A collective
// is done, for that stream, when the result is complete *and* no peer still reads this rank's
// buffers; on devices whose work the host's cores do, the call returns then. Every backend sums
// contributions in rank order unless it says it is exempt.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "runtime/device/stream.h"
#include "src/base/dtype.h"
#include "src/base/status.h"
#include "src/base/units.h"

namespace dc::runtime::comm {

// Memory that collectives may touch: the rank's slab, at its address on the device. Peers' slabs
// have the same layout, so a peer's copy of a buffer is at the same offset, plus (peer - me) *
// rank_stride bytes, peer and me being places in the communicator.
struct Ref {
  void* data = nullptr;
  int64_t rank_stride = 0;  // bytes
};

// One buffer of a fused collective. The whole value has `elements` elements; rank r (here and below
// a place in the communicator) owns [r *
// shard, min((r + 1) * shard, elements)).
struct CollectiveBuffer {
  Ref input, output;
  base::DType dtype = base::DType::F32;  // of the input (wire); reductions deliver f32
  int64_t elements = 0;
  int64_t shard = 0;  // elements
};

struct Traffic {  // bytes this rank sent so far, payload only, as a direct algorithm counts them
  int64_t all_gather = 0, reduce_scatter = 0, all_reduce = 0, other = 0;
  int64_t across_hosts = 0;  // of the first three, to ranks that are known to be on other hosts
};
Traffic operator-(const Traffic& after, const Traffic& before);
Traffic& operator+=(Traffic& sum, const Traffic& more);

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual std::string_view name() const = 0;  // "ipc", "local", "mpi", "nccl", "tcp"
  virtual base::Rank rank() const = 0;        // place in the communicator
  virtual int size() const = 0;
  virtual bool sums_in_rank_order() const = 0;

  // output[r * shard ...] = rank r's input, for every rank r (the valid elements; what lies past
  // `elements` in the output is unspecified). The input may be this rank's range of the output.
  virtual base::Status all_gather(std::span<const CollectiveBuffer> buffers,
                                  device::Stream& stream) = 0;
  // output (f32, shard elements, tail zero) = sum over ranks of this rank's range of their inputs.
  virtual base::Status reduce_scatter(std::span<const CollectiveBuffer> buffers,
                                      device::Stream& stream) = 0;
  // output (f32, whole) = reduce_scatter followed by all_gather; may be in place when dtype is f32.
  virtual base::Status all_reduce(std::span<const CollectiveBuffer> buffers,
                                  device::Stream& stream) = 0;
  // Between the host threads: data of `root` to everyone, and all ranks' data to everyone, for
  // small control messages in the host's memory. They return when they are done.
  virtual base::Status broadcast(void* data, int64_t bytes, base::Rank root) = 0;
  virtual base::Status exchange(const void* mine, int64_t bytes,
                                void* all) = 0;  // all: size() * bytes, in rank order
  virtual base::Status barrier() = 0;

  virtual base::Status health() = 0;  // PeerDied naming the rank, as soon as it is known
  virtual void
  abort() = 0;  // wakes local waiters with Unavailable; safe from a signal-free other thread
  virtual Traffic traffic() const = 0;
};

}  // namespace dc::runtime::comm
