#include "src/frontend/build.h"

#include <utility>

#include "src/frontend/draft.h"

namespace dc::frontend {

base::Result<ir::Step> build_step(RawModel model, const BuildContext& context) {
  Draft draft(std::move(model), context);
  DC_RETURN_IF_ERROR(add_inputs(draft));
  DC_RETURN_IF_ERROR(add_nodes(draft));
  DC_RETURN_IF_ERROR(add_outputs(draft));
  complete_origins(draft);
  draft.step.programs.push_back(ir::Program{std::move(draft.graph), 1});
  return std::move(draft.step);
}

}  // namespace dc::frontend
