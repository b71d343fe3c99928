// gather-by-block: communication as FSDP2 does it (PyTorch, torch.distributed.fsdp.fully_shard):
// one collective per block of the model (analysis/blocks.h), and the next block's gather starts
// when the current block does. The baseline of fuse-gathers, bucket-reductions and
// prefetch-gathers.
//
// What lies outside the blocks (embedding, last norm, head) travels with its neighbours outside. No
// budget is considered: FSDP2 has none. What each kernel reads stays the same; so do all numbers.
#include <algorithm>
#include <utility>

#include "src/analysis/blocks.h"
#include "src/cost/transfer.h"
#include "src/passes/movement.h"
#include "src/schedule/gather_moves.h"
#include "src/schedule/join_gathers.h"
#include "src/schedule/join_reductions.h"

namespace dc::passes {
namespace {

using ir::NodeId;
using ir::OpKind;

// True if all of the bucket may start right after `position`, which lies before it.
bool may_start_behind(const schedule::Positions& axis, const std::vector<NodeId>& bucket,
                      int32_t position) {
  return std::all_of(bucket.begin(), bucket.end(), [&](NodeId start) {
    const int32_t from = axis.position(start);
    return position < from &&
           schedule::earliest_start(axis, axis.graph.node(start), from) <= position + 1;
  });
}

// Each bucket of gathers moves behind the first done of the one before it in its phase. Where nodes
// are not in the model's order, that done may come later than the bucket, which then stays.
int start_one_block_ahead(const ir::Step& step, ir::Graph& graph) {
  const schedule::Positions axis(step, graph);
  int moved = 0;
  NodeId done_before;
  ir::Phase phase_before = ir::Phase::Update;
  for (NodeId id : axis.live.order) {
    const ir::Node& node = graph.node(id);
    if (node.kind != OpKind::AllGatherStart || cost::joins(node)) continue;
    const std::vector<NodeId> bucket = cost::bucket_of(graph, id);
    const NodeId done = graph.value(node.results[0]).uses[0].node;
    const bool is_first = !done_before.valid() || node.origin.phase != phase_before;
    const NodeId behind = std::exchange(done_before, done);
    phase_before = node.origin.phase;
    const bool just_in_time = axis.position(done) == axis.position(bucket.back()) + 1;
    if (is_first || !just_in_time || !may_start_behind(axis, bucket, axis.position(behind)))
      continue;
    const NodeId before = graph.next(behind);
    const NodeId cast = schedule::cast_of(graph, node);
    if (before == id || before == cast) continue;
    schedule::move_gathers(graph, bucket, before);
    ++moved;
  }
  return moved;
}

}  // namespace

base::Result<Change> gather_by_block(ir::Step& step, const PassContext& context) {
  return move_collectives(
      step, context, "gather-by-block", kByBlock, [&](ir::Graph& graph, std::optional<int64_t>) {
        const analysis::Blocks blocks = analysis::blocks(graph);
        const schedule::BucketPolicy same_block = [&](const ir::Node& first, const ir::Node& next,
                                                      base::Bytes) {
          return blocks.of_node[first.id.index()] == blocks.of_node[next.id.index()];
        };
        int changed = schedule::join_gathers(step, graph, context.cost, {}, same_block);
        changed += schedule::join_reductions(step, graph, context.cost, {}, same_block);
        return changed + start_one_block_ahead(step, graph);
      });
}

}  // namespace dc::passes
