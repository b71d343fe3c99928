#include "src/search/default_pipeline.h"

namespace dc::search {

std::vector<const passes::Pass*> default_pipeline() {
  const auto pass = [](const char* name) {
    const passes::Pass* found = passes::find_pass(name);
    DC_CHECK(found != nullptr);
    return found;
  };
  return {
      // First, because every later pass relies on functional, dense, explicit graphs. Nothing may
      // come before it.
      pass("normalize-graph"),
      // Placements come before any node that depends on them: the collectives and the update read
      // them off the parameters.
      pass("shard-parameters"),
      // Before the update, because the update starts from reduced gradients.
      pass("insert-collectives"),
      // Closes the step: after it the graph is complete, and every later pass only orders and
      // places what is there.
      pass("add-update"),
      // The just-in-time baseline. Passes that move collectives or keep parameters resident come
      // after it and before the layout.
      pass("schedule"),
      // Before passes that spend memory on speed, so that they find the room it makes. Changes
      // nothing unless the budget is too small or the user asks.
      pass("recompute"),
      // Last: addresses follow from lifetimes, and lifetimes from the final order.
      pass("layout-arenas"),
  };
}

}  // namespace dc::search
