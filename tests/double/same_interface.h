// Whether calls of a library of CUDA have the types that its header gives them.
#pragma once

#include <type_traits>

namespace dc::tests {

// What our parameter types stand for: enums are ints, handles pointers to something opaque, structs
// as large as theirs.
template <typename Ours, typename Theirs>
constexpr bool fits() {
  using A = std::remove_cv_t<Ours>;
  using B = std::remove_cv_t<Theirs>;
  if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
    using Pointed = std::remove_pointer_t<A>;
    if constexpr (std::is_class_v<Pointed>)
      return true;
    else
      return fits<Pointed, std::remove_pointer_t<B>>();
  } else if constexpr (std::is_enum_v<B>) {
    return std::is_same_v<A, int>;
  } else if constexpr (std::is_class_v<A> && std::is_class_v<B>) {
    return sizeof(A) == sizeof(B) && std::is_trivial_v<A>;
  } else {
    return std::is_same_v<A, B>;
  }
}

template <typename Ours, typename Theirs>
struct Calls;
template <typename... Ours, typename Result, typename... Theirs>
struct Calls<int (*)(Ours...), Result (*)(Theirs...)> {
  static constexpr bool kFit = sizeof...(Ours) == sizeof...(Theirs) &&
                               (fits<Ours, Theirs>() && ...) && std::is_enum_v<Result>;
};

}  // namespace dc::tests
