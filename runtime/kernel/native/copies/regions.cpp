#include "runtime/kernel/native/copies/regions.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace dc::runtime::kernel::native {
namespace {

template <typename T>
void copy_elements(std::byte* to, int64_t to_stride, const std::byte* from, int64_t from_stride,
                   int64_t n) {
  auto* target = reinterpret_cast<T*>(to);
  const auto* source = reinterpret_cast<const T*>(from);
  if (to_stride == 1 && from_stride == 0) {
    std::fill_n(target, n, *source);
    return;
  }
  for (int64_t i = 0; i < n; ++i) target[i * to_stride] = source[i * from_stride];
}

void copy_row(std::byte* to, int64_t to_stride, const std::byte* from, int64_t from_stride,
              int64_t element, int64_t n) {
  if (n == 1 || (to_stride == 1 && from_stride == 1)) {
    std::memcpy(to, from, n * element);
  } else if (element == 1) {
    copy_elements<uint8_t>(to, to_stride, from, from_stride, n);
  } else if (element == 2) {
    copy_elements<uint16_t>(to, to_stride, from, from_stride, n);
  } else if (element == 4) {
    copy_elements<uint32_t>(to, to_stride, from, from_stride, n);
  } else {
    copy_elements<uint64_t>(to, to_stride, from, from_stride, n);
  }
}

}  // namespace

Region::Region(const BoundTensor& tensor)
    : data(static_cast<std::byte*>(tensor.data)),
      dtype(tensor.dtype),
      sizes(tensor.sizes.begin(), tensor.sizes.end()),
      strides(tensor.strides.begin(), tensor.strides.end()) {}

Region Region::narrowed(size_t dim, int64_t start, int64_t size, int64_t step) const {
  Region part = *this;
  part.data += start * strides[dim] * base::byte_size(dtype);
  part.sizes[dim] = size;
  part.strides[dim] = strides[dim] * step;
  return part;
}

Region Region::selected(size_t dim, int64_t index) const {
  Region part = narrowed(dim, index, 1);
  part.sizes.erase(part.sizes.begin() + static_cast<ptrdiff_t>(dim));
  part.strides.erase(part.strides.begin() + static_cast<ptrdiff_t>(dim));
  return part;
}

void CopyRegions::add_fill(Call& call, const Region& region,
                           const std::array<std::byte, 8>& value) {
  if (!call.ok()) return;
  const Iteration iteration(region.sizes, std::array{region.strides});
  call.require(iteration.fits(), "its tensors have too many dims");
  fills_.push_back({region.data, base::byte_size(region.dtype), iteration, value});
}

void CopyRegions::fill_with_argument(Call& call, const Region& region, std::string_view name) {
  const bool integral = !base::is_floating(region.dtype) && !call.is_fraction(name);
  if (integral) return fill(call, region, call.scalar<int64_t>(name));
  fill(call, region, call.scalar<double>(name));
}

void CopyRegions::copy(Call& call, const Region& to, const Region& from) {
  if (!call.ok()) return;
  const std::vector<int64_t> strides = broadcast_strides(from.bound(), to.sizes);
  call.require(strides.size() == to.sizes.size(),
               "what is copied cannot be broadcast to the shape of the result");
  if (!call.ok()) return;
  const Iteration iteration(to.sizes, std::array{to.strides, strides});
  call.require(iteration.fits(), "its tensors have too many dims");
  const Lane lane = lane_of(from.dtype);
  copies_.push_back({to.data, from.data, base::byte_size(to.dtype), base::byte_size(from.dtype),
                     iteration, to.dtype != from.dtype, loader(lane, from.dtype),
                     storer(lane, to.dtype)});
}

base::Status CopyRegions::launch(device::Stream& stream) {
  for (const Fill& fill : fills_) {
    std::byte* to = stream.resolve(fill.to);
    fill.iteration.for_each_row([&](const Offsets& at) {
      copy_row(to + at[0] * fill.element, fill.iteration.inner_stride(0), fill.value.data(), 0,
               fill.element, fill.iteration.inner());
    });
  }
  for (const Copy& copy : copies_) {
    std::byte* to = stream.resolve(copy.to);
    const std::byte* from = stream.resolve(copy.from);
    const int64_t n = copy.iteration.inner();
    const int64_t to_stride = copy.iteration.inner_stride(0);
    const int64_t from_stride = copy.iteration.inner_stride(1);
    copy.iteration.for_each_row([&](const Offsets& at) {
      std::byte* target = to + at[0] * copy.to_element;
      const std::byte* source = from + at[1] * copy.from_element;
      if (!copy.converts) {
        return copy_row(target, to_stride, source, from_stride, copy.to_element, n);
      }
      alignas(64) std::byte lanes[kBlock * 8];
      for (int64_t first = 0; first < n; first += kBlock) {
        const int64_t count = std::min(kBlock, n - first);
        copy.load(lanes, source + first * from_stride * copy.from_element, from_stride, count);
        copy.store(target + first * to_stride * copy.to_element, to_stride, lanes, count);
      }
    });
  }
  return {};
}

}  // namespace dc::runtime::kernel::native
