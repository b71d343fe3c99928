// schedule: the baseline that other schedules must beat. Program order stays; a collective's two
// halves stand side by side (just in time), on the communication stream. What goes across hosts has
// another stream: it uses another link than what stays inside one.
#include "src/cost/transfer.h"
#include "src/passes/pass.h"

namespace dc::passes {

base::Result<Change> schedule(ir::Step& step, const PassContext&) {
  constexpr int kCompute = 0;
  constexpr int kCommunication = 1;
  constexpr int kHosts = 2;
  step.streams = {"compute", "comm"};
  for (ir::Program& program : step.programs) {
    for (ir::NodeId id : program.graph.order()) {
      ir::Node& node = program.graph.edit(id);
      node.stream = cost::transfer_of(program.graph, node) ? kCommunication : kCompute;
      if (node.stream == kCompute || cost::group_of(step, node).level != cost::Level::Across)
        continue;
      node.stream = kHosts;
      step.streams.resize(kHosts + 1, "hosts");
    }
  }
  return Change::Yes;
}

}  // namespace dc::passes
