// The calls of NCCL as we declare them, next to its header.
#include <nccl.h>

#include <cstddef>

#include "runtime/comm/nccl_library.h"
#include "tests/double/same_interface.h"

namespace dc::runtime::comm {
namespace {

#define DC_COMPARE(symbol, member, parameters) \
  static_assert(tests::Calls<decltype(NcclLibrary::member), decltype(&::symbol)>::kFit, #symbol);
DC_NCCL_CALLS(DC_COMPARE)
#undef DC_COMPARE

static_assert(kNcclSuccess == ncclSuccess && kNcclInvalidUsage == ncclInvalidUsage &&
              kNcclRemoteError == ncclRemoteError && kNcclInProgress == ncclInProgress);
static_assert(kNcclBytes == ncclUint8 && sizeof(NcclId) == NCCL_UNIQUE_ID_BYTES);
static_assert(kNcclOldest == NCCL_VERSION(2, 19, 0));

constexpr ncclConfig_t kTheirs = NCCL_CONFIG_INITIALIZER;
static_assert(NcclConfig().magic == kTheirs.magic && NcclConfig().min_ctas == kTheirs.minCTAs &&
              NcclConfig().split_share == kTheirs.splitShare);
static_assert(offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version) &&
              offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking) &&
              offsetof(NcclConfig, max_ctas) == offsetof(ncclConfig_t, maxCTAs) &&
              offsetof(NcclConfig, net_name) == offsetof(ncclConfig_t, netName) &&
              offsetof(NcclConfig, split_share) == offsetof(ncclConfig_t, splitShare));

}  // namespace
}  // namespace dc::runtime::comm
