// AddressWindow: where the host's cores find what lies at a device address.
#pragma once

#include <cstdint>

namespace dc::runtime::device {

// A device address inside the window maps to the host address `distance` bytes above it; any other
// address maps to itself. It costs one comparison and one addition, so kernels may call resolve()
// at every launch.
class AddressWindow {
 public:
  AddressWindow() = default;  // empty: the host sees all memory where it is
  AddressWindow(const void* begin, uint64_t bytes, uint64_t distance)
      : begin_(reinterpret_cast<uintptr_t>(begin)), bytes_(bytes), distance_(distance) {}

  template <typename T>
  T* resolve(T* address) const {
    const auto at = reinterpret_cast<uintptr_t>(address);
    // What lies there is another mapping of the same memory.
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    return at - begin_ < bytes_ ? reinterpret_cast<T*>(at + distance_) : address;
  }

 private:
  uintptr_t begin_ = 0;
  uint64_t bytes_ = 0, distance_ = 0;
};

}  // namespace dc::runtime::device
