// The enums that a training step, its plan and its configuration share, and their words. The
// numbers are those of schemas/plan.fbs.
#pragma once

#include <cstdint>
#include <string_view>

#include "src/base/enum_names.h"

namespace dc::base {

enum class Phase : uint8_t { Forward, Backward, Update };
inline constexpr auto kPhaseNames = enum_names<Phase>({"forward", "backward", "update"});

// Where bytes lie.
enum class Space : uint8_t { Device, Host, Disk };
inline constexpr auto kSpaceNames = enum_names<Space>({"device", "host", "disk"});

// How a value is placed along one axis of the mesh.
enum class AxisPlacement : uint8_t {
  Replicated,  // every rank holds the same whole value
  Shard,       // split along one dim of the tensor
  FlatShard,   // flattened, padded to equal shards of whole elements, tail zero
  Varying,     // every rank has data of its own; the shape is per rank
  Partial,     // every rank holds a summand
};
inline constexpr auto kAxisPlacementNames =
    enum_names<AxisPlacement>({"replicated", "shard", "flat_shard", "varying", "partial"});

enum class InputRole : uint8_t { Tokens, Labels, Mask, Positions, Class, Float, LossScale };
inline constexpr auto kInputRoleNames = enum_names<InputRole>(
    {"tokens", "labels", "mask", "positions", "class", "float", "loss_scale"});

// The rule by which a parameter or buffer starts.
enum class InitKind : uint8_t { Unknown, Normal, Uniform, Zeros, Ones, Constant };
inline constexpr auto kInitKindNames =
    enum_names<InitKind>({"unknown", "normal", "uniform", "zeros", "ones", "constant"});

enum class OptimizerKind : uint8_t { AdamW, Sgd };
inline constexpr auto kOptimizerKindNames = enum_names<OptimizerKind>({"adamw", "sgd"});

// Of the learning rate.
enum class ScheduleKind : uint8_t { Constant, Linear, Cosine };
inline constexpr auto kScheduleKindNames =
    enum_names<ScheduleKind>({"constant", "linear", "cosine"});

constexpr std::string_view name(Phase value) { return enum_name(kPhaseNames, value); }
constexpr std::string_view name(Space value) { return enum_name(kSpaceNames, value); }
constexpr std::string_view name(AxisPlacement value) {
  return enum_name(kAxisPlacementNames, value);
}
constexpr std::string_view name(InputRole value) { return enum_name(kInputRoleNames, value); }
constexpr std::string_view name(InitKind value) { return enum_name(kInitKindNames, value); }
constexpr std::string_view name(OptimizerKind value) {
  return enum_name(kOptimizerKindNames, value);
}
constexpr std::string_view name(ScheduleKind value) { return enum_name(kScheduleKindNames, value); }

}  // namespace dc::base
