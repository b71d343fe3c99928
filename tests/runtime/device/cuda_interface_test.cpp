// The calls of the driver as we declare them, next to the toolkit's header.
#include <cuda.h>

#include "runtime/device/cuda/driver.h"
#include "tests/double/same_interface.h"

namespace dc::runtime::device::cuda {
namespace {

#define DC_COMPARE(symbol, member, parameters) \
  static_assert(tests::Calls<decltype(Driver::member), decltype(&::symbol)>::kFit, #symbol);
DC_CUDA_DRIVER_CALLS(DC_COMPARE)
DC_CUDA_NEWER_DRIVER_CALLS(DC_COMPARE)
#undef DC_COMPARE

static_assert(kSuccess == CUDA_SUCCESS && kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY &&
              kNoDevice == CUDA_ERROR_NO_DEVICE && kNotReady == CUDA_ERROR_NOT_READY);
static_assert(kClockRate == CU_DEVICE_ATTRIBUTE_CLOCK_RATE &&
              kMemoryClockRate == CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE &&
              kExternal == CU_EVENT_RECORD_EXTERNAL);
static_assert(kMultiprocessors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT &&
              kMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR &&
              kMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(kSharedBytesOfBlock == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN &&
              kMostSharedBytes == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(kNonBlocking == CU_STREAM_NON_BLOCKING && kBlockingSync == CU_EVENT_BLOCKING_SYNC &&
              kDisableTiming == CU_EVENT_DISABLE_TIMING && kPortable == CU_MEMHOSTALLOC_PORTABLE);
static_assert(kPortable == CU_MEMHOSTREGISTER_PORTABLE &&
              kDeviceMap == CU_MEMHOSTREGISTER_DEVICEMAP &&
              kLazyPeerAccess == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS &&
              kAtLeast == CU_STREAM_WAIT_VALUE_GEQ);

static_assert(kMemset == CU_GRAPH_NODE_TYPE_MEMSET &&
              sizeof(MemsetNode) == sizeof(CUDA_MEMSET_NODE_PARAMS) &&
              offsetof(MemsetNode, element_bytes) ==
                  offsetof(CUDA_MEMSET_NODE_PARAMS, elementSize) &&
              offsetof(MemsetNode, width) == offsetof(CUDA_MEMSET_NODE_PARAMS, width));
static_assert(sizeof(KernelNode) == sizeof(CUDA_KERNEL_NODE_PARAMS) &&
              offsetof(KernelNode, shared_bytes) ==
                  offsetof(CUDA_KERNEL_NODE_PARAMS, sharedMemBytes) &&
              offsetof(KernelNode, parameters) == offsetof(CUDA_KERNEL_NODE_PARAMS, kernelParams) &&
              offsetof(KernelNode, context) == offsetof(CUDA_KERNEL_NODE_PARAMS, ctx));

}  // namespace
}  // namespace dc::runtime::device::cuda
