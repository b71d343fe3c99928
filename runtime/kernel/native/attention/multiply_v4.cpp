#include "runtime/kernel/native/attention/multiply_tiles.h"

namespace dc::runtime::kernel::native {

void multiply_v4(const SmallProduct& product) { multiply_tiles<InOrder>(product); }
void multiply_bf16_v4(const SmallProduct& product) { multiply_tiles<InPairs>(product); }

}  // namespace dc::runtime::kernel::native
