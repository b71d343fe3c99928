// The elements of one channel of tensors [batch, channels, ...] of any strides, in blocks.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "runtime/kernel/native/norms/rows.h"
#include "src/base/shape.h"

namespace dc::runtime::kernel::native {

// Some elements of a channel: several rows, or a part of one. Rows have `length` elements.
struct Chunk {
  using PerTensor = std::array<int64_t, 3>;
  PerTensor at, steps;  // of each tensor: its first element, and from one row to the next
  int64_t rows = 1, length = 0;
  int64_t count() const { return rows * length; }
};

// The elements of one channel in several tensors of one shape, which have elements.
class Channels {
 public:
  Channels() = default;
  Channels(Call& call, std::initializer_list<const BoundTensor*> tensors) {
    const BoundTensor& shape = **tensors.begin();
    std::vector<int64_t> sizes(shape.sizes.begin(), shape.sizes.end());
    count_ = sizes[1];
    sizes[1] = 1;
    std::vector<std::vector<int64_t>> strides;
    for (const BoundTensor* tensor : tensors) {
      between_[strides.size()] = tensor->strides[1];
      strides.emplace_back(tensor->strides.begin(), tensor->strides.end());
    }
    tensors_ = strides.size();
    rows_ = Iteration(sizes, strides);
    call.require(rows_.fits(), "its tensors have too many dims");
    find_neighbours(shape, tensors);
  }

  int64_t count() const { return count_; }
  int64_t elements() const { return rows_.count(); }  // of one channel
  int64_t stride(size_t tensor) const { return rows_.inner_stride(tensor); }
  // Whether channels lie next to each other in every tensor, of each as many elements together as
  // width() says: one, or those of a small plane.
  bool are_neighbours() const { return width_ > 0; }
  int64_t width() const { return width_; }
  // Of the elements that are handled together: those of a row, or of neighbouring channels.
  int64_t row_stride(size_t tensor) const { return are_neighbours() ? 1 : stride(tensor); }

  // f(chunk): as many whole short rows as a block has room for, or rows block by block.
  template <typename F>
  void for_each_chunk(int64_t channel, F&& f) const {
    const int64_t length = rows_.inner(), at_once = length < kShortRow ? kBlock / length : 1;
    rows_.for_each_plane([&](const Offsets& offsets, int64_t rows, const Offsets& steps) {
      for (int64_t row = 0; row < rows; row += at_once) {
        Chunk chunk{{}, {}, std::min(at_once, rows - row), std::min(length, kBlock)};
        for (size_t t = 0; t < tensors_; ++t) {
          chunk.at[t] = offsets[t] + row * steps[t] + channel * between_[t];
          chunk.steps[t] = steps[t];
        }
        f(static_cast<const Chunk&>(chunk));
        for (int64_t first = kBlock; first < length; first += kBlock) {
          for (size_t t = 0; t < tensors_; ++t) chunk.at[t] += kBlock * stride(t);
          chunk.length = std::min(kBlock, length - first);
          f(static_cast<const Chunk&>(chunk));
        }
      }
    });
  }
  // Of neighbours: f(offsets of the first, how many) for the positions of channel 0, each of
  // width() elements, at most `most` at once; from one to the next it is position_step(tensor).
  template <typename F>
  void for_each_run(int64_t most, F&& f) const {
    positions_.for_each_row([&](const Offsets& at) {
      Offsets offsets = at;
      for (int64_t i = 0; i < positions_.inner(); i += most) {
        f(static_cast<const Offsets&>(offsets), std::min(most, positions_.inner() - i));
        for (size_t t = 0; t < tensors_; ++t) offsets[t] += most * position_step(t);
      }
    });
  }
  int64_t position_step(size_t tensor) const { return positions_.inner_stride(tensor); }

 private:
  static constexpr int64_t kShortRow = 128;  // shorter ones are copied one behind the other

  void find_neighbours(const BoundTensor& shape,
                       std::initializer_list<const BoundTensor*> tensors) {
    if (count_ < 2) return;
    const auto in_all = [&](auto&& holds) {
      for (size_t t = 0; t < tensors_; ++t)
        if (!holds(t, *tensors.begin()[t])) return false;
      return true;
    };
    if (in_all([this](size_t t, const BoundTensor&) {
          return between_[t] == 1 && (elements() == 1 || stride(t) != 1);
        })) {
      width_ = 1;
      positions_ = rows_;
      return;
    }
    const int64_t plane = base::numel(shape.sizes.subspan(2));
    if (plane >= kShortRow || !in_all([&](size_t t, const BoundTensor& tensor) {
          return between_[t] == plane &&
                 base::is_contiguous(tensor.sizes.subspan(2), tensor.strides.subspan(2));
        }))
      return;
    width_ = plane;
    std::vector<std::vector<int64_t>> strides;
    for (const BoundTensor* tensor : tensors) strides.push_back({tensor->strides[0]});
    positions_ = Iteration(shape.sizes.first(1), strides);
  }

  Iteration rows_, positions_;
  int64_t count_ = 0, width_ = 0;
  size_t tensors_ = 0;
  Offsets between_{};  // from one channel to the next
};

// The tensor `index` of a chunk as lanes without gaps, in the buffer or where they lie.
template <typename T>
const T* read_chunk(const RowTensor<T>& tensor, std::byte* base, const Chunk& chunk, size_t index,
                    T* buffer) {
  if (chunk.rows == 1)
    return tensor.read(buffer, tensor.row(base, chunk.at[index]), 0, chunk.length);
  const LaneReader& reader = tensor.reader();
  for (int64_t row = 0; row < chunk.rows; ++row)
    reader.load(buffer + row * chunk.length,
                tensor.row(base, chunk.at[index] + row * chunk.steps[index]), reader.stride,
                chunk.length);
  return buffer;
}
// Where such lanes may be written; and their way from the buffer to memory.
template <typename T>
T* chunk_target(const RowTensor<T>& tensor, std::byte* base, const Chunk& chunk, size_t index,
                T* buffer) {
  return chunk.rows == 1 ? tensor.target(buffer, tensor.row(base, chunk.at[index]), 0) : buffer;
}
// `store`: to the tensor's element type.
template <typename T>
void write_chunk(const RowTensor<T>& tensor, StoreLanes store, std::byte* base, const Chunk& chunk,
                 size_t index, const T* buffer) {
  if (chunk.rows == 1)
    return tensor.write(buffer, tensor.row(base, chunk.at[index]), 0, chunk.length);
  for (int64_t row = 0; row < chunk.rows; ++row)
    store(tensor.row(base, chunk.at[index] + row * chunk.steps[index]), tensor.reader().stride,
          buffer + row * chunk.length, chunk.length);
}

}  // namespace dc::runtime::kernel::native
