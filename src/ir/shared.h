// Shared: a value that its copies share until one of them is changed (copy on write). For what many
// nodes have alike, or what a copy of a graph seldom changes: a search copies graphs all the time.
//
// Reads like a T, and is changed through edit() alone. Threads may copy and read the same object,
// as they may a T.
#pragma once

#include <memory>
#include <utility>

namespace dc::ir {

template <typename T>
class Shared {
 public:
  Shared() = default;                                                 // T()
  Shared(T value) : value_(std::make_shared<T>(std::move(value))) {}  // NOLINT: is a T
  // NOLINTBEGIN: as above; what it requires keeps it from hiding copy and move.
  template <typename From>
  requires(std::is_convertible_v<From, T> && !std::is_same_v<std::remove_cvref_t<From>, T> &&
           !std::is_same_v<std::remove_cvref_t<From>, Shared>) Shared(From&& from)
      : Shared(T(std::forward<From>(from))) {}
  // NOLINTEND

  const T& operator*() const {
    static const T kDefault;
    return value_ ? *value_ : kDefault;
  }
  const T* operator->() const { return &**this; }
  operator const T&() const { return **this; }  // NOLINT: reads like a T

  auto begin() const { return (**this).begin(); }
  auto end() const { return (**this).end(); }
  auto size() const { return (**this).size(); }
  bool empty() const { return !value_ || value_->empty(); }
  decltype(auto) operator[](size_t index) const { return (**this)[index]; }

  // This one's own, to change. References that operator* gave before may not see the change.
  T& edit() {
    if (value_.use_count() != 1) value_ = std::make_shared<T>(**this);
    return const_cast<T&>(*value_);  // NOLINT: no object that it points to was made as a constant
  }

  // Whether both read one object, and so are equal.
  bool shares_with(const Shared& other) const { return value_ == other.value_; }
  bool operator==(const Shared& other) const { return value_ == other.value_ || **this == *other; }
  template <typename Other>
  requires(!std::is_same_v<Other, Shared>) bool operator==(const Other& other) const {
    return **this == other;
  }

 private:
  std::shared_ptr<const T> value_;  // null: T()
};

}  // namespace dc::ir
