#include "runtime/kernel/native/copies/regions.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "runtime/kernel/native/copies/transpose.h"
#include "runtime/kernel/native/copy_rows.h"
#include "runtime/kernel/native/fill.h"

namespace dc::runtime::kernel::native {
namespace {

// Rows of a plane, all strides in elements.
struct Plane {
  int64_t rows, length, to_step, from_step, to_stride, from_stride;
};

// A row of each copy in turns.
DC_VECTOR_CLONES void copy_in_turns(const DenseRows* copies, size_t count, int64_t rows) {
  for (int64_t row = 0; row < rows; ++row) {
    for (size_t i = 0; i < count; ++i) {
      const DenseRows& copy = copies[i];
      copy_row<32>(copy.to + row * copy.to_step, copy.from + row * copy.from_step, copy.length);
    }
  }
}

template <typename T>
void copy_dense_rows(T* to, const T* from, const Plane& p) {
  constexpr int64_t kSize = sizeof(T);
  copy_rows(reinterpret_cast<std::byte*>(to), p.to_step * kSize,
            reinterpret_cast<const std::byte*>(from), p.from_step * kSize, p.rows,
            p.length * kSize);
}

// Every element of the rows becomes `value`.
template <typename T>
void fill_rows(T* to, T value, const Plane& p) {
  constexpr int64_t kShort = 256;  // elements
  if (p.rows > 1 && p.length <= kShort) {
    T row[kShort];
    std::fill_n(row, p.length, value);
    return copy_dense_rows(to, row, {p.rows, p.length, p.to_step, 0, 1, 1});
  }
  // libc's, which does not read what it overwrites, is faster in the caches and slower beyond.
  constexpr int64_t kMostInCache = int64_t{4} << 20;  // bytes
  const int64_t bytes = p.length * static_cast<int64_t>(sizeof(T));
  for (int64_t row = 0; row < p.rows; ++row) {
    T* first = to + row * p.to_step;
    if (value == T{} && bytes <= kMostInCache) {
      std::memset(first, 0, static_cast<size_t>(bytes));
    } else {
      fill_dense(first, value, p.length);
    }
  }
}

template <typename T>
void copy_plane(std::byte* to_bytes, const std::byte* from_bytes, const Plane& p) {
  auto* to = reinterpret_cast<T*>(to_bytes);
  const auto* from = reinterpret_cast<const T*>(from_bytes);
  const bool repeats = p.from_stride == 0 && (p.rows == 1 || p.from_step == 0);
  if (p.to_stride == 1 && p.from_stride == 1) return copy_dense_rows(to, from, p);
  if (p.to_stride == 1 && repeats) return fill_rows(to, *from, p);
  if constexpr (sizeof(T) == 2 || sizeof(T) == 4) {
    using Bits = std::conditional_t<sizeof(T) == 2, uint16_t, float>;
    if (p.to_stride == 1 && p.from_step == 1)
      return transpose(reinterpret_cast<Bits*>(to_bytes), p.to_step,
                       reinterpret_cast<const Bits*>(from_bytes), p.from_stride, p.length, p.rows);
  }
  for (int64_t row = 0; row < p.rows; ++row, to += p.to_step, from += p.from_step) {
    if (p.to_stride == 1 && p.from_stride == 0) {
      fill_dense(to, *from, p.length);
    } else {
      for (int64_t i = 0; i < p.length; ++i) to[i * p.to_stride] = from[i * p.from_stride];
    }
  }
}

void copy_elements(std::byte* to, const std::byte* from, int64_t element, Plane p) {
  if (p.length == 1) p.to_stride = p.from_stride = 1;
  switch (element) {
    case 1:
      return copy_plane<uint8_t>(to, from, p);
    case 2:
      return copy_plane<uint16_t>(to, from, p);
    case 4:
      return copy_plane<uint32_t>(to, from, p);
    default:
      return copy_plane<uint64_t>(to, from, p);
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

Element element_of(Call& call, base::DType dtype, std::string_view name) {
  const bool integral = !base::is_floating(dtype) && !call.is_fraction(name);
  return integral ? stored(dtype, call.scalar<int64_t>(name))
                  : stored(dtype, call.scalar<double>(name));
}

void CopyRegions::add_fill(Call& call, const Region& region, const Element& value) {
  if (!call.ok()) return;
  const Iteration iteration(region.sizes, std::array{region.strides});
  call.require(iteration.fits(), "its tensors have too many dims");
  fills_.push_back({region.data, base::byte_size(region.dtype), iteration, value});
}

void CopyRegions::copy(Call& call, const Region& to, const Region& from) {
  if (!call.ok()) return;
  const auto strides = broadcast_strides(from.bound(), to.sizes);
  call.require(strides.has_value(),
               "what is copied cannot be broadcast to the shape of the result");
  if (!call.ok()) return;
  const Iteration iteration(to.sizes, std::array{to.strides, *strides});
  call.require(iteration.fits(), "its tensors have too many dims");
  const Lane lane = lane_of(from.dtype);
  copies_.push_back({to.data, from.data, to.dtype, from.dtype, base::byte_size(to.dtype),
                     base::byte_size(from.dtype), iteration, to.dtype != from.dtype,
                     dtype_of(lane) == from.dtype && iteration.inner_stride(1) == 1,
                     dtype_of(lane) == to.dtype && iteration.inner_stride(0) == 1,
                     loader(lane, from.dtype), storer(lane, to.dtype)});
}

void CopyRegions::take_turns() {
  constexpr int64_t kLong = 256;  // bytes of a row that are worth a turn
  if (copies_.size() < 2) return;
  for (const Copy& copy : copies_) {
    const Iteration& over = copy.iteration;
    const int64_t rows = over.dims().empty() ? 0 : over.dims().front().size;
    const DenseRows dense{copy.to, copy.from, over.inner() * copy.to_element,
                          over.outer_stride(0) * copy.to_element,
                          over.outer_stride(1) * copy.from_element};
    const bool is_taken = !copy.converts && over.dims().size() == 2 && over.inner_stride(0) == 1 &&
                          over.inner_stride(1) == 1 && dense.length >= kLong &&
                          (in_turns_.empty() || rows == rows_in_turns_);
    if (!is_taken) return in_turns_.clear();
    rows_in_turns_ = rows;
    in_turns_.push_back(dense);
  }
  running_ = in_turns_;
}

base::Status CopyRegions::launch(device::Stream& stream) {
  for (const Fill& fill : fills_) {
    std::byte* to = stream.resolve(fill.to);
    const Iteration& over = fill.iteration;
    over.for_each_plane([&](const Offsets& at, int64_t rows, const Offsets& steps) {
      copy_elements(to + at[0] * fill.element, fill.value.bytes.data(), fill.element,
                    {rows, over.inner(), steps[0], 0, over.inner_stride(0), 0});
    });
  }
  if (!in_turns_.empty()) {
    for (size_t i = 0; i < in_turns_.size(); ++i) {
      running_[i].to = stream.resolve(in_turns_[i].to);
      running_[i].from = stream.resolve(in_turns_[i].from);
    }
    copy_in_turns(running_.data(), running_.size(), rows_in_turns_);
    return {};
  }
  for (const Copy& copy : copies_) {
    std::byte* to = stream.resolve(copy.to);
    const std::byte* from = stream.resolve(copy.from);
    const Iteration& over = copy.iteration;
    if (copy.converts) {
      over.for_each_row([&](const Offsets& at) {
        copy.convert(to + at[0] * copy.to_element, from + at[1] * copy.from_element);
      });
      continue;
    }
    over.for_each_plane([&](const Offsets& at, int64_t rows, const Offsets& steps) {
      copy_elements(
          to + at[0] * copy.to_element, from + at[1] * copy.from_element, copy.to_element,
          {rows, over.inner(), steps[0], steps[1], over.inner_stride(0), over.inner_stride(1)});
    });
  }
  return {};
}

void CopyRegions::Copy::convert(std::byte* target, const std::byte* source) const {
  const int64_t n = iteration.inner();
  const int64_t to_stride = iteration.inner_stride(0), from_stride = iteration.inner_stride(1);
  if (from_is_lanes) return store(target, to_stride, source, n);
  if (to_is_lanes) return load(target, source, from_stride, n);
  alignas(64) std::byte lanes[kBlock * 8];
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t count = std::min(kBlock, n - first);
    load(lanes, source + first * from_stride * from_element, from_stride, count);
    store(target + first * to_stride * to_element, to_stride, lanes, count);
  }
}

}  // namespace dc::runtime::kernel::native
