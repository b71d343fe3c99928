#include "runtime/plan/plan.h"

namespace dc::runtime::plan {

int32_t Plan::world() const {
  int32_t world = 1;
  for (const auto& [axis, size] : mesh) world *= size;
  return world;
}

}  // namespace dc::runtime::plan
