// fuse-gathers: gathers that follow each other in one phase travel as one collective (a bucket)
// where the latency saved is worth it (bucket_policy.h) and the budget allows it. The published
// rule (DeepCompile, arXiv 2504.09983, Algorithm 1) is prefetch-gathers-greedily. What each kernel
// reads stays the same; so do all numbers.
#include "src/passes/movement.h"
#include "src/schedule/join_gathers.h"

namespace dc::passes {

base::Result<Change> fuse_gathers(ir::Step& step, const PassContext& context) {
  return move_collectives(
      step, context, "fuse-gathers", kGathersJoined,
      [&](ir::Graph& graph, std::optional<int64_t> limit) {
        return schedule::join_gathers(
            step, graph, context.cost, limit,
            schedule::amortizes_latency(step, graph, context.cost, context.argument));
      });
}

}  // namespace dc::passes
