#include "src/passes/shard/choose_providers.h"

#include <utility>
#include <vector>

#include "src/ir/effects.h"
#include "src/ir/kernel_signature.h"
#include "src/ir/native_ops.h"

namespace dc::passes {
namespace {

// Nodes that libtorch computes faster, by more than a fusion with others may save.
class FasterInLibtorch {
 public:
  explicit FasterInLibtorch(const cost::CostModel& cost) : cost_(cost) {}

  // `native`: whose kernel is the runtime's own.
  void add(ir::Graph& graph, ir::NodeId native) {
    const cost::Estimate own = cost_.compute(graph, graph.node(native));
    graph.set_provider(native, base::Provider::Aten);
    const cost::Estimate other = cost_.compute(graph, graph.node(native));
    graph.set_provider(native, base::Provider::Native);
    const bool measured = own.source == cost::Source::Measured && other.source == own.source;
    if (!measured || own.time.v <= other.time.v + other.time.v / 10) return;
    nodes_.emplace_back(&graph, native);
    saved_ += own.time - other.time;
  }

  // Gives them to libtorch, unless it would be loaded for less than it costs.
  void take(bool is_loaded) {
    if (!is_loaded && saved_ < kLoading) return;
    for (const auto& [graph, id] : nodes_) graph->set_provider(id, base::Provider::Aten);
  }

 private:
  // Loading libtorch takes 0.2 s: that is so much of each of a thousand steps.
  static constexpr base::Nanos kLoading{200'000};

  const cost::CostModel& cost_;
  std::vector<std::pair<ir::Graph*, ir::NodeId>> nodes_;
  base::Nanos saved_;
};

}  // namespace

bool choose_providers(ir::Step& step, Providers providers, const cost::CostModel& cost) {
  FasterInLibtorch faster(cost);
  bool needs_libtorch = false;
  std::vector<base::Provider> before, after;
  const auto providers_of = [&step](std::vector<base::Provider>& all) {
    for (const ir::Program& program : step.programs)
      for (const ir::NodeId id : program.graph.order())
        all.push_back(program.graph.node(id).provider);
  };
  providers_of(before);
  for (ir::Program& program : step.programs) {
    ir::Graph& graph = program.graph;
    for (const ir::NodeId id : graph.order()) {
      const ir::Node& node = graph.node(id);
      if (node.kind != ir::OpKind::Aten || ir::is_view(node)) continue;
      const bool is_native =
          providers != Providers::Aten && ir::has_native_kernel(ir::signature_of(graph, node));
      graph.set_provider(id, is_native ? base::Provider::Native : base::Provider::Aten);
      needs_libtorch |= !is_native;
      if (is_native && providers == Providers::Any) faster.add(graph, id);
    }
  }
  faster.take(needs_libtorch);
  providers_of(after);
  return before != after;
}

}  // namespace dc::passes
