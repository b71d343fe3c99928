// Tables of names of enumerators that cannot be too short or too long: the compiler counts the
// enumerators.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace dc::base {

// Whether `value` is one of its enum's enumerators. GCC and Clang print "(Enum)3" in the function's
// name for a value without one.
template <auto value>
consteval bool is_enumerator() {
  const std::string_view function = __PRETTY_FUNCTION__;
  const size_t at = function.rfind("value = ");
  return at != std::string_view::npos && function[at + 8] != '(';
}

// Of an enum whose enumerators are 0, 1, 2, ...
template <typename Enum, size_t from = 0>
consteval size_t enum_count() {
  if constexpr (is_enumerator<static_cast<Enum>(from)>()) {
    return enum_count<Enum, from + 1>();
  } else {
    return from;
  }
}

// Of an enum with other numbers below `limit`.
template <typename Enum, size_t limit, size_t from = 0>
consteval size_t sparse_enum_count() {
  if constexpr (from == limit) {
    return 0;
  } else {
    return is_enumerator<static_cast<Enum>(from)>() + sparse_enum_count<Enum, limit, from + 1>();
  }
}

// All of them, in order.
template <typename Enum>
consteval std::array<Enum, enum_count<Enum>()> enum_values() {
  std::array<Enum, enum_count<Enum>()> values{};
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<Enum>(i);
  return values;
}

// The names in the enumerators' order: names[static_cast<size_t>(value)].
template <typename Enum, size_t N>
consteval std::array<std::string_view, N> enum_names(const char* const (&names)[N]) {
  static_assert(N == enum_count<Enum>(), "one name for each enumerator");
  std::array<std::string_view, N> table;
  for (size_t i = 0; i < N; ++i) table[i] = names[i];
  return table;
}

// The name of `value`; "?" of a number that no enumerator has.
template <typename Enum, size_t N>
constexpr std::string_view enum_name(const std::array<std::string_view, N>& names, Enum value) {
  const auto index = static_cast<size_t>(value);
  return index < N ? names[index] : "?";
}

// The enumerator with that name; nothing if none has it.
template <typename Enum, size_t N>
constexpr std::optional<Enum> enum_value(const std::array<std::string_view, N>& names,
                                         std::string_view text) {
  for (size_t i = 0; i < N; ++i) {
    if (names[i] == text) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace dc::base
