// Rows of several tensors of one shape: along some dims that lie behind each other with one stride,
// for every position of the others.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "runtime/kernel/native/call.h"
#include "runtime/kernel/native/iteration.h"
#include "runtime/kernel/native/lanes.h"

namespace dc::runtime::kernel::native {

// One tensor, row by row, as lanes of type T.
template <typename T>
class RowTensor {
 public:
  RowTensor() = default;
  RowTensor(const BoundTensor& tensor, int64_t stride)
      : data_(static_cast<std::byte*>(tensor.data)),
        reader_(kLaneOf<T>, tensor.dtype, stride),
        store_(storer(kLaneOf<T>, tensor.dtype)),
        is_lanes_(dtype_of(kLaneOf<T>) == tensor.dtype) {}

  bool given() const { return data_ != nullptr; }
  // Of the running kernel: its memory on this stream.
  std::byte* on(const device::Stream& stream) const {
    return data_ == nullptr ? nullptr : stream.resolve(data_);
  }
  std::byte* row(std::byte* base, int64_t offset) const { return base + offset * reader_.element; }
  const std::byte* row(const std::byte* base, int64_t offset) const {
    return base + offset * reader_.element;
  }
  // Elements [first, first + n) of a row: in the buffer, or where they lie.
  const T* read(T* buffer, const std::byte* row, int64_t first, int64_t n) const {
    return static_cast<const T*>(reader_.read(buffer, row, first, n));
  }
  // Where they may be written: in place, or in the buffer that write() then stores.
  T* target(T* buffer, std::byte* row, int64_t first) const {
    return reader_.direct ? reinterpret_cast<T*>(row) + first : buffer;
  }
  void write(const T* buffer, std::byte* row, int64_t first, int64_t n) const {
    if (!reader_.direct)
      store_(row + first * reader_.stride * reader_.element, reader_.stride, buffer, n);
  }
  void put(std::byte* base, int64_t offset, T value) const {
    if (is_lanes_) {
      *reinterpret_cast<T*>(row(base, offset)) = value;
    } else {
      store_(row(base, offset), 1, &value, 1);
    }
  }
  T get(const std::byte* base, int64_t offset) const {
    const std::byte* at = base + offset * reader_.element;
    if (is_lanes_) return *reinterpret_cast<const T*>(at);
    T value;
    reader_.load(&value, at, 1, 1);
    return value;
  }
  const LaneReader& reader() const { return reader_; }

 private:
  std::byte* data_ = nullptr;
  LaneReader reader_;
  StoreLanes store_ = nullptr;
  bool is_lanes_ = false;  // elements are in memory what is computed with
};

// One row, block by block. A block that is wanted again before another is converted only once, as a
// row is that is no longer than a block.
template <typename T>
class RowBlocks {
 public:
  RowBlocks(const RowTensor<T>& tensor, const std::byte* row) : tensor_(tensor), row_(row) {}

  const T* read(int64_t first, int64_t n) {
    if (first != first_) lanes_ = tensor_.read(buffer_, row_, first, n);
    first_ = first;
    return lanes_;
  }

 private:
  const RowTensor<T>& tensor_;
  const std::byte* row_;
  int64_t first_ = -1;
  const T* lanes_ = nullptr;
  alignas(64) T buffer_[kBlock];
};

// Rows along dims [first, end) of `tensors`, which have the shape of `shape`; `numbers` have one
// element per row, with size 1 in those dims. Offsets are in this order. Refuses other shapes, and
// rows whose elements do not have one distance, which is 0 in an expanded operand.
class Rows {
 public:
  Rows() = default;
  Rows(Call& call, const BoundTensor& shape, size_t first, size_t end,
       std::initializer_list<const BoundTensor*> tensors,
       std::initializer_list<const BoundTensor*> numbers = {});

  int64_t length() const { return length_; }                        // of a row
  int64_t stride(size_t tensor) const { return strides_[tensor]; }  // of one of `tensors`
  int64_t count() const { return outer_.count(); }
  const Iteration& first_elements() const { return outer_; }  // of the rows of all tensors

  // f(offsets): one per tensor, of the row's first element.
  template <typename F>
  void for_each(F&& f) const {
    outer_.for_each_row([&](const Offsets& at) {
      Offsets offsets = at;
      for (int64_t i = 0; i < outer_.inner(); ++i) {
        f(static_cast<const Offsets&>(offsets));
        for (size_t t = 0; t < tensors_; ++t) offsets[t] += outer_.inner_stride(t);
      }
    });
  }

 private:
  Iteration outer_;
  int64_t length_ = 1;
  size_t tensors_ = 0;
  Offsets strides_{};
};

}  // namespace dc::runtime::kernel::native
