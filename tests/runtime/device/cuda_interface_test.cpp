// The calls of the driver as we declare them, next to the toolkit's header.
#include <cuda.h>

#include <type_traits>

#include "runtime/device/cuda/driver.h"

namespace dc::runtime::device::cuda {
namespace {

// What our parameter types stand for: enums are ints, handles pointers to something opaque.
template <typename Ours, typename Theirs>
constexpr bool fits() {
  using A = std::remove_cv_t<Ours>;
  using B = std::remove_cv_t<Theirs>;
  if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
    using Pointed = std::remove_pointer_t<A>;
    if constexpr (std::is_class_v<Pointed>)
      return true;
    else
      return fits<Pointed, std::remove_pointer_t<B>>();
  } else if constexpr (std::is_enum_v<B>) {
    return std::is_same_v<A, int>;
  } else {
    return std::is_same_v<A, B>;
  }
}

template <typename Ours, typename Theirs>
struct Calls;
template <typename... Ours, typename Result, typename... Theirs>
struct Calls<int (*)(Ours...), Result (*)(Theirs...)> {
  static constexpr bool kFit = sizeof...(Ours) == sizeof...(Theirs) &&
                               (fits<Ours, Theirs>() && ...) && std::is_enum_v<Result>;
};

#define DC_COMPARE(symbol, member, parameters) \
  static_assert(Calls<decltype(Driver::member), decltype(&::symbol)>::kFit, #symbol);
DC_CUDA_DRIVER_CALLS(DC_COMPARE)
#undef DC_COMPARE

static_assert(kSuccess == CUDA_SUCCESS && kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY &&
              kNoDevice == CUDA_ERROR_NO_DEVICE);
static_assert(kMultiprocessors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT &&
              kMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR &&
              kMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(kNonBlocking == CU_STREAM_NON_BLOCKING && kBlockingSync == CU_EVENT_BLOCKING_SYNC &&
              kDisableTiming == CU_EVENT_DISABLE_TIMING && kPortable == CU_MEMHOSTALLOC_PORTABLE);

}  // namespace
}  // namespace dc::runtime::device::cuda
