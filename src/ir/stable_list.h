// StableList: a list that only grows at its end. Elements stay where they are, so references to
// them last; they lie in blocks, so a copy of the list allocates a block at a time.
#pragma once

#include <cstddef>
#include <vector>

namespace dc::ir {

template <typename T>
class StableList {
 public:
  StableList() = default;
  StableList(StableList&&) noexcept = default;
  StableList& operator=(StableList&&) noexcept = default;
  StableList(const StableList& other) : size_(other.size_) {
    blocks_.reserve(other.blocks_.size());
    for (const std::vector<T>& block : other.blocks_) {
      std::vector<T>& copy = blocks_.emplace_back();
      copy.reserve(kBlock);
      copy.insert(copy.end(), block.begin(), block.end());
    }
  }
  StableList& operator=(const StableList& other) { return *this = StableList(other); }

  T& operator[](size_t index) { return blocks_[index / kBlock][index % kBlock]; }
  const T& operator[](size_t index) const { return blocks_[index / kBlock][index % kBlock]; }
  size_t size() const { return size_; }

  T& emplace_back() {
    if (size_ % kBlock == 0) blocks_.emplace_back().reserve(kBlock);
    ++size_;
    return blocks_.back().emplace_back();
  }

 private:
  static constexpr size_t kBlock = 128;
  std::vector<std::vector<T>> blocks_;  // each of kBlock elements, the last perhaps of fewer
  size_t size_ = 0;
};

}  // namespace dc::ir
