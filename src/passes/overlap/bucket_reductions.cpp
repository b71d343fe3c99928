// bucket-reductions: reductions that follow each other travel as one collective (a bucket) where
// the latency saved is worth it (bucket_policy.h) and the budget allows it. Each owner still sums
// each gradient in rank order; so all numbers stay.
#include "src/passes/movement.h"
#include "src/schedule/join_reductions.h"

namespace dc::passes {

base::Result<Change> bucket_reductions(ir::Step& step, const PassContext& context) {
  return move_collectives(
      step, context, "bucket-reductions", kReductionsJoined,
      [&](ir::Graph& graph, std::optional<int64_t> limit) {
        return schedule::join_reductions(
            step, graph, context.cost, limit,
            schedule::amortizes_latency(step, graph, context.cost, context.argument));
      });
}

}  // namespace dc::passes
