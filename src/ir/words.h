// The words by which enums are printed and parsed.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "src/ir/step.h"

namespace dc::ir {

template <typename Enum>
struct Words;  // Words<E>::kList[i] is the word of E(i)

template <>
struct Words<Stage> {
  static constexpr std::array<std::string_view, 5> kList = {"imported", "normalized", "sharded",
                                                            "scheduled", "allocated"};
};
template <>
struct Words<Phase> {
  static constexpr std::array<std::string_view, 3> kList = {"forward", "backward", "update"};
};
template <>
struct Words<Space> {
  static constexpr std::array<std::string_view, 3> kList = {"device", "host", "disk"};
};
template <>
struct Words<Spread> {
  static constexpr std::array<std::string_view, 5> kList = {"replicated", "shard", "flat_shard",
                                                            "varying", "partial"};
};
template <>
struct Words<OutputKind> {
  static constexpr std::array<std::string_view, 3> kList = {"loss", "gradient", "buffer"};
};
template <>
struct Words<InputRole> {
  static constexpr std::array<std::string_view, 7> kList = {
      "tokens", "labels", "mask", "positions", "class", "float", "loss_scale"};
};
template <>
struct Words<InitKind> {
  static constexpr std::array<std::string_view, 6> kList = {"unknown", "normal", "uniform",
                                                            "zeros",   "ones",   "constant"};
};
template <>
struct Words<ParameterPlacement> {
  static constexpr std::array<std::string_view, 3> kList = {"resident", "gathered_per_use",
                                                            "gathered_per_step"};
};
template <>
struct Words<GradientPlacement> {
  static constexpr std::array<std::string_view, 2> kList = {"whole_until_last",
                                                            "sharded_each_micro_batch"};
};
template <>
struct Words<StatePlacement> {
  static constexpr std::array<std::string_view, 2> kList = {"replicated", "sharded"};
};
template <>
struct Words<StateRole> {
  static constexpr std::array<std::string_view, 16> kList = {
      "parameter", "shard",    "master", "moment1", "moment2", "momentum", "accumulator", "carried",
      "buffer",    "constant", "slots",  "rng",     "scalars", "table",    "loss_sum",    "losses"};
};
template <>
struct Words<OptimizerKind> {
  static constexpr std::array<std::string_view, 2> kList = {"adamw", "sgd"};
};
template <>
struct Words<ScheduleKind> {
  static constexpr std::array<std::string_view, 3> kList = {"constant", "linear", "cosine"};
};

template <typename Enum>
std::string_view word(Enum value) {
  return Words<Enum>::kList[static_cast<size_t>(value)];
}

template <typename Enum>
std::optional<Enum> from_word(std::string_view text) {
  for (size_t i = 0; i < Words<Enum>::kList.size(); ++i) {
    if (Words<Enum>::kList[i] == text) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace dc::ir
