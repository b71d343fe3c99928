// Live bytes: how much memory a program needs at each of its positions, per memory space. Exact:
// every slice counts with its alignment, so no layout is smaller than the peak.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "src/analysis/liveness.h"

namespace dc::analysis {

using ScratchBytes = std::function<base::Bytes(const ir::Graph&, const ir::Node&)>;

int64_t aligned_bytes(int64_t bytes);  // what a slice of so many bytes takes

struct LivePeak {
  int32_t position = 0;  // the first one with the most bytes
  base::Bytes bytes;
};

struct LiveBytes {
  // By space, then position. A transient counts in its own space, scratch on the device. State
  // does not count. The vector of a space without transients is empty; the device's never is.
  ir::PerSpace<std::vector<int64_t>> at;

  const std::vector<int64_t>& in(ir::Space space) const { return at[space]; }
  LivePeak peak(ir::Space space) const;  // of no bytes at position 0 where nothing lies
};

// `scratch` is asked once per node; without it the workspace already set in the nodes counts.
LiveBytes live_bytes(const ir::Graph& graph, const Liveness& live,
                     const ScratchBytes& scratch = {});

// What the state of a step takes in a space, alignment included.
base::Bytes state_bytes(const ir::Step& step, ir::Space space);

// State and the largest sum of live bytes of any program. As PeakMemory::live, without the list of
// what lives there.
base::Bytes most_live_bytes(const ir::Step& step, const ScratchBytes& scratch, ir::Space space);

}  // namespace dc::analysis
