#include "runtime/kernel/strided_copy.h"

#include <cstring>

#include "src/base/shape.h"

namespace dc::runtime::kernel {
namespace {

template <typename Element>
void copy_dims(Element* to, std::span<const int64_t> to_strides, const Element* from,
               std::span<const int64_t> from_strides, std::span<const int64_t> sizes) {
  if (sizes.empty()) {
    *to = *from;
    return;
  }
  for (int64_t i = 0; i < sizes[0]; ++i, to += to_strides[0], from += from_strides[0]) {
    if (sizes.size() == 1) {
      *to = *from;
    } else {
      copy_dims(to, to_strides.subspan(1), from, from_strides.subspan(1), sizes.subspan(1));
    }
  }
}

template <typename Element>
void copy_as(void* to, std::span<const int64_t> to_strides, const void* from,
             std::span<const int64_t> from_strides, std::span<const int64_t> sizes) {
  copy_dims(static_cast<Element*>(to), to_strides, static_cast<const Element*>(from), from_strides,
            sizes);
}

}  // namespace

bool same_places(std::span<const int64_t> sizes, std::span<const int64_t> a,
                 std::span<const int64_t> b) {
  if (base::extent(sizes, a) == 0) return true;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (sizes[dim] != 1 && a[dim] != b[dim]) return false;
  }
  return true;
}

void copy_strided(void* to, std::span<const int64_t> to_strides, const void* from,
                  std::span<const int64_t> from_strides, std::span<const int64_t> sizes,
                  int64_t width) {
  if (same_places(sizes, to_strides, from_strides)) {
    std::memcpy(to, from, static_cast<size_t>(base::extent(sizes, to_strides) * width));
  } else if (width == 1) {
    copy_as<uint8_t>(to, to_strides, from, from_strides, sizes);
  } else if (width == 2) {
    copy_as<uint16_t>(to, to_strides, from, from_strides, sizes);
  } else if (width == 4) {
    copy_as<uint32_t>(to, to_strides, from, from_strides, sizes);
  } else {
    copy_as<uint64_t>(to, to_strides, from, from_strides, sizes);
  }
}

}  // namespace dc::runtime::kernel
