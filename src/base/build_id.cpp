#include "src/base/build_id.h"

namespace dc::base {

std::string_view build_id() {
  return
#include "build_id.inc"  // generated: a string literal
      ;
}

std::string_view runtime_id() {
  return
#include "runtime_id.inc"  // generated: a string literal
      ;
}

}  // namespace dc::base
