// What one plan does otherwise than another: for compiling again with a new profile.
#pragma once

#include <string>
#include <vector>

#include "runtime/plan/plan.h"

namespace dc::runtime::report {

// One line each, most important first: options, chain, predicted step, memory, gathers, reductions,
// kernels, copies. Equal programs at equal addresses: the first line says that nothing changed, and
// only predicted times may follow. For verified plans of one model.
std::vector<std::string> changes(const plan::Plan& before, const plan::Plan& after);

}  // namespace dc::runtime::report
