// The passes that turn an imported step into an allocated one, in order, with the reasons.
#pragma once

#include <vector>

#include "src/passes/pass.h"

namespace dc::search {

std::vector<const passes::Pass*> default_pipeline();

}  // namespace dc::search
