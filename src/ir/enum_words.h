// The words by which enums are printed and parsed.
#pragma once

#include <optional>
#include <string_view>

#include "src/base/enum_names.h"
#include "src/ir/step.h"

namespace dc::ir {

template <typename Enum>
struct Words;  // Words<E>::kList[i] is the word of E(i)

template <>
struct Words<Stage> {
  static constexpr auto kList =
      base::enum_names<Stage>({"imported", "normalized", "sharded", "scheduled", "allocated"});
};
template <>
struct Words<Phase> {
  static constexpr auto kList = base::kPhaseNames;
};
template <>
struct Words<Space> {
  static constexpr auto kList = base::kSpaceNames;
};
template <>
struct Words<AxisPlacement> {
  static constexpr auto kList = base::kAxisPlacementNames;
};
template <>
struct Words<OutputKind> {
  static constexpr auto kList = base::enum_names<OutputKind>({"loss", "gradient", "buffer"});
};
template <>
struct Words<InputRole> {
  static constexpr auto kList = base::kInputRoleNames;
};
template <>
struct Words<InitKind> {
  static constexpr auto kList = base::kInitKindNames;
};
template <>
struct Words<ParameterPlacement> {
  static constexpr auto kList =
      base::enum_names<ParameterPlacement>({"resident", "gathered_per_use"});
};
template <>
struct Words<GradientPlacement> {
  static constexpr auto kList =
      base::enum_names<GradientPlacement>({"whole_until_last", "sharded_each_micro_batch"});
};
template <>
struct Words<StatePlacement> {
  static constexpr auto kList = base::enum_names<StatePlacement>({"replicated", "sharded"});
};
template <>
struct Words<StateRole> {
  static constexpr auto kList = base::kStateRoleNames;
};
template <>
struct Words<OptimizerKind> {
  static constexpr auto kList = base::kOptimizerKindNames;
};
template <>
struct Words<ScheduleKind> {
  static constexpr auto kList = base::kScheduleKindNames;
};

template <typename Enum>
std::string_view word(Enum value) {
  return Words<Enum>::kList[static_cast<size_t>(value)];
}

template <typename Enum>
std::optional<Enum> from_word(std::string_view text) {
  return base::enum_value<Enum>(Words<Enum>::kList, text);
}

}  // namespace dc::ir
