// The rules of DeepCompile (arXiv 2504.09983; DeepSpeed, deepspeed/compile/passes) with their
// published constants, apart from any graph: the baseline that our own passes are compared with.
// All sizes in bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/base/units.h"

namespace dc::passes::published {

// Nine tenths of the device memory may be used.
int64_t usable(int64_t device_memory);
int64_t headroom(int64_t usable, int64_t peak);  // never negative

// prefetch.py: gathers that wait to be issued take at most this; a group of fused gathers is
// smaller than that.
inline constexpr int64_t kPendingBytes = 4'000'000'000, kGroupBytes = 1'000'000'000;
// Two gathers fuse while 1.2 times the longer of them takes longer than both at once.
bool fuse(base::Nanos group, base::Nanos next, base::Nanos fused, int64_t fused_bytes);

// DeepSpeed's defaults for ZeRO-3 without a compiler (stage3_prefetch_bucket_size,
// stage3_max_live_parameters), in elements: what a module's prefetch begins, what may be whole.
inline constexpr int64_t kTraceElements = 50'000'000, kLiveElements = 1'000'000'000;

struct Parameter {
  base::Nanos time;  // of all its gathers
  int64_t bytes = 0;
};
// selective_gather.py: indices, in order of time per byte (equal ones in the order given), up to
// the first that does not fit.
std::vector<size_t> keep_resident(std::span<const Parameter> parameters, int64_t headroom);

// offload_adam_states.py: four fifths of the device memory may be used.
int64_t usable_beside_states(int64_t device_memory);
// How many states leave, the first ones first: until those that stay fit next to every one of the
// forward peaks, which hold no state.
size_t states_that_leave(std::span<const int64_t> peaks, std::span<const int64_t> states,
                         int64_t budget);
// For each state that left, in order: after which of the backward nodes it starts to come back, as
// soon as it fits next to the largest peak still to come and those before it; the number of nodes
// if it never does, so that it comes at their end. The peaks are of the nodes, in order.
std::vector<size_t> states_that_return(std::span<const int64_t> peaks,
                                       std::span<const int64_t> states, int64_t budget);

// offload_activation.py: smaller activations stay.
inline constexpr int64_t kLeastActivation = 5 << 20;
struct BackwardNode {
  base::Nanos time;
  int64_t peak = 0;
};
// How many nodes before its reader a copy in starts. `before`: these nodes, in program order. The
// copy starts earlier until they hide it, or until the next one has no room for it next to the
// `reloaded` bytes that are already back.
size_t reload_ahead(std::span<const BackwardNode> before, int64_t bytes, base::Nanos copy,
                    int64_t reloaded, int64_t budget);
// Indices of the activations that stay, the largest first (equal ones in the order given); those
// that do not fit are passed over.
std::vector<size_t> activations_that_stay(std::span<const int64_t> sizes, int64_t headroom);

}  // namespace dc::passes::published
