#include "runtime/kernel/native/attention/multiply_tiles.h"

namespace dc::runtime::kernel::native {

void multiply_v3(const SmallProduct& product) { multiply_tiles(product); }

}  // namespace dc::runtime::kernel::native
