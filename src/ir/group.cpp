#include "src/ir/group.h"

namespace dc::ir {

std::vector<int64_t> axes_in(const Mesh& mesh, AxisMask mask) {
  std::vector<int64_t> axes;
  for (size_t a = 0; a < mesh.axes.size(); ++a) {
    if ((mask >> a & 1) != 0) axes.push_back(static_cast<int64_t>(a));
  }
  return axes;
}

AxisMask group_of(const Node& start) {
  const Arg* arg = start.find(Attr::Ranks);
  const auto* axes = arg == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(&arg->value);
  if (axes == nullptr) return kAllAxes;
  AxisMask group = 0;
  for (int64_t axis : *axes) group |= axis >= 0 && axis < int64_t{kMaxAxes} ? 1U << axis : 0;
  return group;
}

std::vector<Arg> collective_args(const Mesh& mesh, int64_t elements, int64_t shard,
                                 AxisMask group) {
  std::vector<Arg> args = {{Attr::Elements, elements}, {Attr::Shard, shard}};
  if (mesh.is_world(group)) return args;
  args.push_back({Attr::Ranks, axes_in(mesh, group)});
  return args;
}

}  // namespace dc::ir
