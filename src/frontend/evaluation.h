// The archive's second program: the forward in eval mode up to its loss.
#pragma once

#include <vector>

#include "src/base/status.h"
#include "src/frontend/build.h"
#include "src/frontend/import.h"

namespace dc::frontend {

// Reads extra/evaluation.json into Step::evaluation. Its parameters and buffers are those of
// `step`; a constant that the step does not have becomes one more buffer with a state entry.
// `dims`: as given for the step. BadInput (DC2055) if a tensor differs from the step's.
base::Status add_evaluation(const BuildContext& context, const std::vector<DimSize>& dims,
                            ir::Step& step);

}  // namespace dc::frontend
