// Copies between regions of tensors, of any strides and element types.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "runtime/kernel/native/iteration.h"
#include "runtime/kernel/native/lanes.h"
#include "runtime/kernel/native/registry.h"

namespace dc::runtime::kernel::native {

// A view of a tensor: its own sizes and strides.
struct Region {
  std::byte* data = nullptr;
  base::DType dtype = base::DType::F32;
  std::vector<int64_t> sizes, strides;

  Region() = default;
  explicit Region(const BoundTensor& tensor);
  // The same with elements [start, start + size * step) of one dim.
  Region narrowed(size_t dim, int64_t start, int64_t size, int64_t step = 1) const;
  Region selected(size_t dim, int64_t index) const;  // without the dim
  BoundTensor bound() const { return {data, dtype, sizes, strides}; }
};

// A number as an element of this type.
struct alignas(8) Element {
  std::array<std::byte, 8> bytes{};
};
template <typename T>
Element stored(base::DType dtype, T value) {
  Element element;
  storer(kLaneOf<T>, dtype)(element.bytes.data(), 1, &value, 1);
  return element;
}
// The named argument; of integers exactly.
Element element_of(Call& call, base::DType dtype, std::string_view name);

// A copy of rows without gaps; length and steps in bytes.
struct DenseRows {
  std::byte *to, *from;
  int64_t length, to_step, from_step;
};

// First fills regions with numbers, then copies regions, both in the order in which they were
// added.
class CopyRegions final : public Kernel {
 public:
  // Every element of the region gets the value, converted to its type.
  template <typename T>
  void fill(Call& call, const Region& region, T value) {
    add_fill(call, region, stored(region.dtype, value));
  }
  // The same, of all that lies outside of [start, end) of one dim.
  template <typename T>
  void fill_around(Call& call, const Region& region, size_t dim, int64_t start, int64_t end,
                   T value) {
    if (!call.ok()) return;
    if (start > 0) fill(call, region.narrowed(dim, 0, start), value);
    if (end < region.sizes[dim])
      fill(call, region.narrowed(dim, end, region.sizes[dim] - end), value);
  }
  // The value of the named argument.
  void fill_with_argument(Call& call, const Region& region, std::string_view name) {
    add_fill(call, region, element_of(call, region.dtype, name));
  }
  // `from` is broadcast to the shape of `to`.
  void copy(Call& call, const Region& to, const Region& from);
  // To be called behind the last of several copies that fill rows of one tensor together: long rows
  // are copied in turns, so that the tensor is written from start to end.
  void take_turns();

  // What is filled and then copied, for devices that have other kernels.
  struct Fill {
    std::byte* to;
    int64_t element;
    Iteration iteration;
    Element value;
  };
  struct Copy {
    std::byte *to, *from;
    base::DType to_dtype, from_dtype;
    int64_t to_element, from_element;
    Iteration iteration;
    bool converts;
    bool from_is_lanes, to_is_lanes;  // so a row is converted without a block between
    LoadLanes load;
    StoreLanes store;

    void convert(std::byte* target, const std::byte* source) const;  // a row
  };
  std::span<const Fill> fills() const { return fills_; }
  std::span<const Copy> copies() const { return copies_; }

  base::Status launch(device::Stream& stream) override;

 private:
  void add_fill(Call& call, const Region& region, const Element& value);

  std::vector<Fill> fills_;
  std::vector<Copy> copies_;
  std::vector<DenseRows> in_turns_;  // the copies, if they take turns
  std::vector<DenseRows> running_;   // the same at the addresses of the stream
  int64_t rows_in_turns_ = 0;        // of each
};

}  // namespace dc::runtime::kernel::native
