#include "src/cost/cost_model.h"

namespace dc::cost {

Group group_on(const ir::Mesh& mesh, ir::AxisMask axes) {
  const int ranks = mesh.size(axes);
  if (mesh.is_world(axes) || mesh.axes.size() < 2) return {ranks};
  const ir::AxisMask inner = mesh.shard_axes();
  if ((axes & ~inner & mesh.wide()) == 0) return {ranks, Level::Inside};
  return {ranks, (axes & inner & mesh.wide()) == 0 ? Level::Across : Level::World};
}

}  // namespace dc::cost
