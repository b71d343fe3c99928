// Where the elements of strided tensors lie, and copies from one order to another.
#pragma once

#include <cstdint>
#include <span>

namespace dc::runtime::kernel {

// Whether two tensors of these sizes put every element at the same place.
bool same_places(std::span<const int64_t> sizes, std::span<const int64_t> a,
                 std::span<const int64_t> b);

// Copies elements of `width` bytes (1, 2, 4 or 8); strides count elements. Allocates nothing.
void copy_strided(void* to, std::span<const int64_t> to_strides, const void* from,
                  std::span<const int64_t> from_strides, std::span<const int64_t> sizes,
                  int64_t width);

}  // namespace dc::runtime::kernel
