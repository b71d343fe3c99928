#include "src/passes/fuse/product_node.h"

namespace dc::passes {

bool is_product(const ir::Node& node) {
  return node.kind == ir::OpKind::Aten && node.provider == base::Provider::Native &&
         node.overload == "aten.mm.default";
}

bool fused_pays(const ir::Graph& graph, const ir::Node& fused, std::span<const ir::NodeId> apart,
                const PassContext& context) {
  if (context.options.fuse_products == FuseProducts::Always) return true;
  const cost::Estimate together = context.cost.compute(graph, fused);
  base::Nanos sum;
  size_t known = 0;
  for (const ir::NodeId id : apart) {
    const cost::Estimate one = context.cost.compute(graph, graph.node(id));
    sum += one.time;
    known += one.source == cost::Source::Measured ? 1 : 0;
  }
  if (together.source != cost::Source::Measured) return known == 0;
  return known < apart.size() || together.time <= sum;
}

}  // namespace dc::passes
