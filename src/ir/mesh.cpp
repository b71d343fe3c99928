#include "src/ir/mesh.h"

namespace dc::ir {

int Mesh::size(AxisMask group) const {
  int ranks = 1;
  for (size_t a = 0; a < axes.size(); ++a) {
    if ((group >> a & 1) != 0) ranks *= axes[a].size;
  }
  return ranks;
}

int Mesh::index(AxisMask group, int rank) const {
  int index = 0, scale = 1;
  for (size_t a = axes.size(); a-- > 0; rank /= axes[a].size) {
    if ((group >> a & 1) == 0) continue;
    index += rank % axes[a].size * scale;
    scale *= axes[a].size;
  }
  return index;
}

AxisMask Mesh::wide() const {
  AxisMask mask = 0;
  for (size_t a = 0; a < axes.size(); ++a) {
    if (axes[a].size > 1) mask |= 1U << a;
  }
  return mask;
}

AxisMask Mesh::shard_axes() const { return axes.empty() ? 1 : 1U << (axes.size() - 1); }

}  // namespace dc::ir
