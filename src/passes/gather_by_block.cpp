// gather-by-block: communication as FSDP2 does it (PyTorch, torch.distributed.fsdp.fully_shard):
// one collective per block of the model (analysis/blocks.h), and the next block's gather starts
// when the current block does. The baseline of fuse-gathers, bucket-reductions and
// prefetch-gathers.
//
// What lies outside the blocks (embedding, last norm, head) travels with its neighbours outside. No
// budget is asked: FSDP2 knows none. What each kernel reads stays the same; so do all numbers.
#include "src/analysis/blocks.h"
#include "src/cost/transfer.h"
#include "src/passes/buckets.h"
#include "src/passes/gather_moves.h"

namespace dc::passes {
namespace {

using ir::NodeId;
using ir::OpKind;

// Each bucket of gathers moves behind the first done of the one before it in its phase.
int start_one_block_ahead(const ir::Step& step, ir::Graph& graph, const cost::CostModel& cost) {
  const TimeAxis axis(step, graph, cost);
  int moved = 0;
  NodeId done_before;
  ir::Phase phase_before = ir::Phase::Update;
  for (NodeId id : axis.live.order) {
    const ir::Node& node = graph.node(id);
    if (node.kind != OpKind::AllGatherStart || cost::joins(node)) continue;
    const std::vector<NodeId> bucket = cost::bucket_of(graph, id);
    const NodeId done = graph.value(node.results[0]).uses[0].node;
    const bool is_first = !done_before.valid() || node.origin.phase != phase_before;
    const NodeId before = is_first ? NodeId{} : graph.next(done_before);
    done_before = done;
    phase_before = node.origin.phase;
    const bool beside = axis.position(done) == axis.position(bucket.back()) + 1;
    if (is_first || before == id || !beside) continue;
    move_gathers(graph, bucket, before);
    ++moved;
  }
  return moved;
}

}  // namespace

base::Result<Change> gather_by_block(ir::Step& step, PassContext& context) {
  return move_collectives(
      step, context, "gather-by-block", "collectives go by block",
      [&](ir::Graph& graph, std::optional<int64_t>) {
        const analysis::Blocks blocks = analysis::blocks(graph);
        const Belongs same_block = [&](const ir::Node& first, const ir::Node& next, base::Bytes) {
          return blocks.of_node[first.id.index()] == blocks.of_node[next.id.index()];
        };
        int changed = join_gathers(step, graph, context.cost, {}, same_block);
        changed += join_reductions(step, graph, context.cost, {}, same_block);
        return changed + start_one_block_ahead(step, graph, context.cost);
      });
}

}  // namespace dc::passes
