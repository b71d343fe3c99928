#include "runtime/plan/plan.h"

namespace dc::runtime::plan {

int32_t Plan::world() const {
  int32_t world = 1;
  for (const auto& [axis, size] : mesh) world *= size;
  return world;
}

const Variant* Plan::variant(Purpose purpose) const {
  for (const Variant& one : variants) {
    if (one.purpose == purpose) return &one;
  }
  return nullptr;
}

}  // namespace dc::runtime::plan
