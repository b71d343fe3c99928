// schedule: the baseline that other schedules must beat. Program order stays; a collective's two
// halves stand side by side (just in time), on the communication stream.
#include "src/cost/transfer.h"
#include "src/passes/pass.h"

namespace dc::passes {

base::Result<Change> schedule(ir::Step& step, const PassContext&) {
  constexpr int kCompute = 0;
  constexpr int kCommunication = 1;
  step.streams = {"compute", "comm"};
  for (ir::Program& program : step.programs) {
    for (ir::NodeId id : program.graph.order()) {
      ir::Node& node = program.graph.node(id);
      node.stream = cost::transfer_of(program.graph, node) ? kCommunication : kCompute;
    }
  }
  return Change::Yes;
}

}  // namespace dc::passes
