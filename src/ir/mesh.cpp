#include "src/ir/mesh.h"

#include "src/base/mesh_place.h"

namespace dc::ir {
namespace {

int size_of(const MeshAxis& axis) { return axis.size; }

}  // namespace

int Mesh::size(AxisMask group) const {
  return base::group_size(axes, size_of, [&](size_t axis) { return (group >> axis & 1) != 0; });
}

int Mesh::index(AxisMask group, int rank) const {
  const auto in_group = [&](size_t axis) { return (group >> axis & 1) != 0; };
  return base::index_in_group(axes, size_of, in_group, rank);
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
