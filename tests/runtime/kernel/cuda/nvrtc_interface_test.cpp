// The calls of NVRTC as we declare them, next to the toolkit's header.
#include "runtime/kernel/cuda/nvrtc.h"

#include <nvrtc.h>

#include "tests/double/same_interface.h"

namespace dc::runtime::kernel::cuda {
namespace {

#define DC_COMPARE(symbol, member, parameters) \
  static_assert(tests::Calls<decltype(NvrtcCalls::member), decltype(&::symbol)>::kFit, #symbol);
DC_NVRTC_CALLS(DC_COMPARE)
#undef DC_COMPARE

static_assert(kNvrtcSuccess == NVRTC_SUCCESS);

}  // namespace
}  // namespace dc::runtime::kernel::cuda
