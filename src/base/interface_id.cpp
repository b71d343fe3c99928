#include "src/base/interface_id.h"

namespace dc::base {

const char* interface_id() {
  return
#include "interface_id.inc"  // generated: a string literal
      ", compiler " __VERSION__;
}

}  // namespace dc::base
