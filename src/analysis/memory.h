// The peak of one memory space: the index at which most bytes live, how many bytes of each kind
// live there, and the largest values among them.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "src/analysis/live_bytes.h"

namespace dc::analysis {

struct LiveValue {
  std::string name;    // value, state entry, or "scratch of <op>"
  std::string module;  // FQN of the producer's module; empty for state
  SliceKind kind = SliceKind::Activations;
  base::Bytes bytes;
};

// The peak of one memory space. Every size is rounded up to the alignment of slices, so the sizes
// by kind add up to `live`.
struct PeakMemory {
  int program = 0;       // index into Step::programs
  int32_t position = 0;  // in that program
  std::string node;      // "aten.mm.default"
  std::string module;    // FQN of the node's module
  base::Bytes live;
  std::array<base::Bytes, base::enum_count<SliceKind>()> by_kind{};
  std::vector<LiveValue> largest;  // by decreasing size, at most `largest_count`
};

// `scratch`: as for live_bytes; it is device memory.
PeakMemory peak_memory(const ir::Step& step, const ScratchBytes& scratch = {},
                       size_t largest_count = 8, ir::Space space = ir::Space::Device);

std::string describe(const PeakMemory& peak);  // one line per large value, for errors and reports
std::string op_text(const ir::Node& node);     // "aten.mm.default", "all_gather.start"

}  // namespace dc::analysis
