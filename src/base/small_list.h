// SmallList: a list that has room for a few elements in itself, and goes to the heap for more. For
// lists that are mostly short and of which a program has very many: a copy of a short one allocates
// nothing. Reads and grows like a std::vector, and converts from and to one.
//
// References and iterators die where those of a std::vector would, and with a move.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <type_traits>
#include <vector>

namespace dc::base {

template <typename T, uint32_t kInPlace>
class SmallList {
  static_assert(std::is_trivially_copyable_v<T> && kInPlace > 0);

 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  SmallList() noexcept {}
  explicit SmallList(size_t count, const T& value = T()) { assign(count, value); }
  SmallList(std::initializer_list<T> elements) { append(elements.begin(), elements.size()); }
  SmallList(const std::vector<T>& elements) {  // NOLINT: reads like one
    append(elements.data(), elements.size());
  }
  template <std::forward_iterator Iterator>
  SmallList(Iterator first, Iterator last) {
    reserve(static_cast<size_t>(std::distance(first, last)));
    for (; first != last; ++first) push_back(*first);
  }
  SmallList(const SmallList& other) { append(other.data(), other.size_); }
  SmallList(SmallList&& other) noexcept { take(other); }
  SmallList& operator=(const SmallList& other) {
    if (this == &other) return *this;
    size_ = 0;
    append(other.data(), other.size_);
    return *this;
  }
  SmallList& operator=(SmallList&& other) noexcept {
    if (this == &other) return *this;
    release();
    take(other);
    return *this;
  }
  ~SmallList() { release(); }

  operator std::vector<T>() const {
    return std::vector<T>(begin(), end());
  }  // NOLINT: reads like one

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return is_in_place() ? in_place_ : heap_; }
  const T* data() const { return is_in_place() ? in_place_ : heap_; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  auto rbegin() const { return std::reverse_iterator<const T*>(end()); }
  auto rend() const { return std::reverse_iterator<const T*>(begin()); }
  T& operator[](size_t index) { return data()[index]; }
  const T& operator[](size_t index) const { return data()[index]; }
  T& front() { return data()[0]; }
  const T& front() const { return data()[0]; }
  T& back() { return data()[size_ - 1]; }
  const T& back() const { return data()[size_ - 1]; }

  void reserve(size_t count) {
    if (count > capacity_) move_to(count);
  }
  void clear() { size_ = 0; }
  void assign(size_t count, const T& value) {
    const T kept = value;  // which may be an element
    reserve(count);
    std::fill_n(data(), count, kept);
    size_ = static_cast<uint32_t>(count);
  }
  void push_back(const T& value) {
    const T kept = value;  // which may be an element
    if (size_ == capacity_) move_to(size_t{2} * capacity_);
    data()[size_++] = kept;
  }
  void pop_back() { --size_; }
  T* insert(const T* before, const T& value) { return insert(before, 1, value); }
  T* insert(const T* before, size_t count, const T& value) {
    const std::ptrdiff_t at = before - begin();
    for (size_t i = 0; i < count; ++i) push_back(value);
    std::rotate(begin() + at, end() - static_cast<std::ptrdiff_t>(count), end());
    return begin() + at;
  }
  T* erase(const T* element) {
    T* at = begin() + (element - begin());
    std::copy(at + 1, end(), at);
    --size_;
    return at;
  }
  // Behind the last element; `elements` are not of this list.
  void append(const T* elements, size_t count) {
    reserve(size_ + count);
    std::copy_n(elements, count, end());
    size_ += static_cast<uint32_t>(count);
  }

  friend bool operator==(const SmallList& a, const SmallList& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  friend bool operator<(const SmallList& a, const SmallList& b) {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  bool is_in_place() const { return capacity_ == kInPlace; }

  void move_to(size_t capacity) {
    T* larger = new T[capacity];
    std::copy_n(data(), size_, larger);
    release();
    heap_ = larger;
    capacity_ = static_cast<uint32_t>(capacity);
  }
  void release() {
    if (!is_in_place()) delete[] heap_;
    capacity_ = kInPlace;
  }
  // `this` has nothing on the heap.
  void take(SmallList& other) {
    size_ = other.size_;
    capacity_ = other.capacity_;
    if (other.is_in_place()) {
      std::copy_n(other.in_place_, size_, in_place_);
    } else {
      heap_ = other.heap_;
    }
    other.capacity_ = kInPlace;
    other.size_ = 0;
  }

  uint32_t size_ = 0, capacity_ = kInPlace;  // more than kInPlace: on the heap
  union {
    T in_place_[kInPlace];
    T* heap_;
  };
};

}  // namespace dc::base
