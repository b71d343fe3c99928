// Relaxation: a step taken apart into independent choices, each with its work and the bytes it
// needs. Prices on work and bytes then bound the step time from below, whatever is chosen
// (A. M. Geoffrion, "Lagrangean relaxation for integer programming", Mathematical Programming
// Study 2, 1974; M. L. Fisher, Management Science 27, 1981).
//
// Let a plan take the time T, work_r on resource r, and live_i bytes at instant i, with
// live_i <= budget. For weights w >= 0 that no moment of a step can exceed (limits.h)
// T >= sum_r w_r work_r, so with prices p >= 0
//   T >= sum_r w_r work_r + sum_i p_i (live_i - budget).
// Work and live bytes are at least the fixed ones and those of one option of each choice, so the
// least sum over the options of each choice alone bounds T. Every w and p gives a true bound; the
// search for good ones (dual.h) only makes it better.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "src/ir/graph.h"

namespace dc::bound {

// What work is counted on.
// Compute: kernels, but for those of Update, the optimizer's.
// Head: the time until the first gather has ended that nearly all kernels depend on.
// Queue, HostQueue: the streams of collectives, one after the other, latency and wire; of those
// across hosts. Refresh: the gathers of updated parameters, on the same stream as Queue.
// Ranks, Inside, ToHost, FromHost: links (sim::Link), wire alone, refreshes too.
enum class Resource : uint8_t {
  Compute,
  Update,
  Head,
  Queue,
  Refresh,
  HostQueue,
  Ranks,
  Inside,
  ToHost,
  FromHost
};
inline constexpr size_t kResources = 10;

struct Work {
  std::array<double, kResources> ns{};

  double& operator[](Resource resource) { return ns[static_cast<size_t>(resource)]; }
  double operator[](Resource resource) const { return ns[static_cast<size_t>(resource)]; }
  Work& operator+=(const Work& other) {
    for (size_t r = 0; r < kResources; ++r) ns[r] += other.ns[r];
    return *this;
  }
  Work operator*(double factor) const {
    Work result = *this;
    for (double& one : result.ns) one *= factor;
    return result;
  }
};

// Bytes live at the instants first ... last, both included; part of them where only some runs of a
// repeated program have them.
struct Charge {
  int32_t first = 0, last = -1;
  double bytes = 0;
};

// A part of the cost of a source.
struct Need {
  int32_t source = 0;
  double share = 1;
};

struct Option {
  Work work;
  std::vector<Charge> charges;
  std::vector<Need> needs{};
};
using Item = std::vector<Option>;         // exactly one of them
using Alternative = std::vector<Item>;    // all of them
using Choice = std::vector<Alternative>;  // exactly one of them

// A kernel that every schedule runs, and every run of it: the original one, where passes add
// another.
struct Instant {
  int32_t program = 0;
  ir::NodeId node;
  int32_t repeat = 1;  // of its program. All runs have the same price; the dual sees their sum.
};

struct Relaxation {
  std::vector<Instant> instants;
  Work fixed;
  std::vector<double> fixed_bytes;  // by instant
  // What choices share. If whatever needs a source has parts of it that sum to 1 at most, the sum
  // of the parts that are needed is at most its cost, which a plan pays once. An option of a source
  // needs only sources before it.
  std::vector<Item> sources;
  std::vector<Choice> choices;
};

}  // namespace dc::bound
