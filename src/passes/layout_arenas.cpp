// layout-arenas: addresses for every value, through src/layout, and the memory budget.
#include "src/layout/allocate.h"
#include "src/passes/pass.h"

namespace dc::passes {

base::Result<Change> layout_arenas(ir::Step& step, const PassContext& context) {
  DC_RETURN_IF_ERROR(layout::allocate(step, context.cost, context.options.budgets));
  return Change::Yes;
}

}  // namespace dc::passes
