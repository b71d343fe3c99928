// Places of ranks in groups of a mesh. Ranks count row-major over the axes of the mesh: those that
// differ along the last axis only follow each other. A group is a set of axes: its ranks differ
// along these only.
#pragma once

#include <cstddef>
#include <iterator>

namespace dc::base {

// Ranks in a group. size_of(axis): ranks along an element of `axes`; in_group(i): whether axis i is
// one of the group's.
template <typename Axes, typename SizeOf, typename InGroup>
constexpr int group_size(const Axes& axes, SizeOf size_of, InGroup in_group) {
  int ranks = 1;
  for (size_t i = 0; i < std::size(axes); ++i) {
    if (in_group(i)) ranks *= size_of(axes[i]);
  }
  return ranks;
}

// The place of `rank` in its group, in rank order. No axis has size 0.
template <typename Axes, typename SizeOf, typename InGroup>
constexpr int index_in_group(const Axes& axes, SizeOf size_of, InGroup in_group, int rank) {
  int index = 0, scale = 1;
  for (size_t i = std::size(axes); i-- > 0; rank /= size_of(axes[i])) {
    if (!in_group(i)) continue;
    index += rank % size_of(axes[i]) * scale;
    scale *= size_of(axes[i]);
  }
  return index;
}

}  // namespace dc::base
