// overlap-reductions: compute goes on while a gradient is reduced (defer_reductions.h); with a
// size, no more than that travels at once.
#include "src/passes/movement.h"
#include "src/schedule/defer_reductions.h"

namespace dc::passes {

base::Result<Change> overlap_reductions(ir::Step& step, const PassContext& context) {
  return move_collectives(step, context, "overlap-reductions", kReductionsOverlapped,
                          [&](ir::Graph& graph, std::optional<int64_t> limit) {
                            return schedule::defer_reductions(step, graph, context.cost, limit,
                                                              context.argument.value_or(INT64_MAX));
                          });
}

}  // namespace dc::passes
