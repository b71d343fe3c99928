// schedule: the baseline that other schedules must beat. Program order stays; a collective's two
// halves stand side by side (just in time), on the communication stream.
#include "src/passes/pass.h"

namespace dc::passes {

namespace {

bool starts_collective(ir::OpKind kind) {
  return kind == ir::OpKind::AllGatherStart || kind == ir::OpKind::AllGatherIntoStart ||
         kind == ir::OpKind::ReduceScatterStart || kind == ir::OpKind::AllReduceStart;
}

}  // namespace

base::Result<Change> schedule(ir::Step& step, PassContext&) {
  constexpr int kCompute = 0;
  constexpr int kCommunication = 1;
  step.streams = {"compute", "comm"};
  for (ir::Program& program : step.programs) {
    for (ir::NodeId id : program.graph.order()) {
      ir::Node& node = program.graph.node(id);
      node.stream = starts_collective(node.kind) ? kCommunication : kCompute;
    }
  }
  return Change::Yes;
}

}  // namespace dc::passes
