// SharedBlocks: a list that only grows at its end, in blocks that copies of the list share until
// one of them changes an element of the block (copy on write). A search copies graphs all the time,
// and changes a part of each.
//
// A reference to an element reads on what it was when edit() gives the element of a block that was
// shared: ask again after a change. Threads may copy and read the same list, as they may a vector.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

namespace dc::ir {

template <typename T>
class SharedBlocks {
 public:
  const T& operator[](size_t index) const { return (*blocks_[index / kBlock])[index % kBlock]; }
  size_t size() const { return size_; }

  // This list's own, to change.
  T& edit(size_t index) {
    std::shared_ptr<Block>& block = blocks_[index / kBlock];
    if (block.use_count() > 1) block = std::make_shared<Block>(*block);
    return (*block)[index % kBlock];
  }

  T& emplace_back() {
    if (size_ % kBlock == 0) blocks_.push_back(std::make_shared<Block>());
    return edit(size_++);
  }

 private:
  static constexpr size_t kBlock = 32;  // a block takes some kilobytes
  using Block = std::array<T, kBlock>;  // of the last one perhaps only the first are elements
  std::vector<std::shared_ptr<Block>> blocks_;
  size_t size_ = 0;
};

}  // namespace dc::ir
