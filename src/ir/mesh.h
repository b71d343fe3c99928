// Mesh: how ranks are arranged, and the groups of them that meet in a collective.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace dc::ir {

// Bit i is mesh axis i. As a group: the ranks that differ from a rank along these axes only. Bits
// that the mesh has no axis for count for nothing.
using AxisMask = uint32_t;

inline constexpr size_t kMaxAxes = 4;
inline constexpr AxisMask kAllAxes = (1U << kMaxAxes) - 1;  // the group of all ranks

struct MeshAxis {
  std::string name;  // "dp"
  int size = 1;
};

// Row-major over axes: ranks that differ along the last one only follow each other, and are nearest
// to each other where machines are. One axis, "dp", unless the step is split by host.
struct Mesh {
  std::vector<MeshAxis> axes;

  int world() const { return size(kAllAxes); }
  int size(AxisMask group) const;             // ranks in such a group
  int index(AxisMask group, int rank) const;  // of a rank in its group, in rank order
  // Those of more than one rank.
  AxisMask wide() const;
  // Along these parameters, gradients and state are split; along the others they are replicated.
  AxisMask shard_axes() const;
  // Whether a group holds all ranks.
  bool is_world(AxisMask group) const { return (wide() & ~group) == 0; }
};

}  // namespace dc::ir
