// The enums that a training step, its plan and its configuration share, and their words. The
// numbers are those of schemas/plan.fbs.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "src/base/enum_names.h"

namespace dc::base {

enum class Phase : uint8_t { Forward, Backward, Update };
inline constexpr auto kPhaseNames = enum_names<Phase>({"forward", "backward", "update"});

// Where bytes lie.
enum class Space : uint8_t { Device, Host, Disk };
inline constexpr auto kSpaceNames = enum_names<Space>({"device", "host", "disk"});
inline constexpr auto kSpaces = enum_values<Space>();

// One value for each space.
template <typename T>
struct PerSpace {
  std::array<T, kSpaces.size()> values{};
  T& operator[](Space space) { return values[static_cast<size_t>(space)]; }
  const T& operator[](Space space) const { return values[static_cast<size_t>(space)]; }
  bool operator==(const PerSpace&) const = default;
};

// As in NCCL.
enum class CollectiveKind : uint8_t { AllGather, ReduceScatter, AllReduce, Broadcast, AllToAll };
inline constexpr auto kCollectiveKindNames = enum_names<CollectiveKind>(
    {"all_gather", "reduce_scatter", "all_reduce", "broadcast", "all_to_all"});
// Whether the compiler makes such collectives, which then have a cost and can be run. The plan's
// format knows the others for the sake of later versions.
constexpr bool has_op(CollectiveKind kind) { return kind <= CollectiveKind::AllReduce; }
// Bytes by which collectives are measured and estimated: those of the whole value. The second half
// of an all-reduce gathers sums in float32, so that one of another type is as one of the mean size.
constexpr int64_t wire_bytes(CollectiveKind kind, int64_t elements, int64_t element_bytes) {
  if (kind != CollectiveKind::AllReduce) return elements * element_bytes;
  return elements * (element_bytes + 4) / 2;
}
// Whether it adds numbers of several ranks.
constexpr bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::ReduceScatter || kind == CollectiveKind::AllReduce;
}

// How a value is placed along one axis of the mesh.
enum class AxisPlacement : uint8_t {
  Replicated,  // every rank holds the same whole value
  Shard,       // split along one dim of the tensor
  FlatShard,   // flattened, padded to equal shards of whole elements, tail zero
  Varying,     // each rank holds other data; the shape is per rank
  Partial,     // every rank holds a summand
};
inline constexpr auto kAxisPlacementNames =
    enum_names<AxisPlacement>({"replicated", "shard", "flat_shard", "varying", "partial"});

// What a state tensor is for.
enum class StateRole : uint8_t {
  Unknown,          // it does not say; no step that is verified, no plan that is run
  Parameter,        // whole, in the parameter's dtype, as the model reads it
  Shard,            // of the parameter, in its dtype
  Master,           // f32 copy that the update keeps exact, where the dtype or the space is another
  Moment1,          // f32, AdamW
  Moment2,          // f32, AdamW
  Momentum,         // f32, SGD
  Accumulator,      // f32, sum of gradients over the micro-batches of one step
  Carried,          // a gathered parameter that stays whole from one program to the next
  Buffer,           // a module's buffer
  Constant,         // a lifted constant
  Hyperparameters,  // the rest: see step_scalars.h
  Random,
  Scalars,
  NormTable,
  LossSum,
  Losses,  // loss sums of all ranks, gathered before the norm table
};

// What only the optimizer reads: its moments or momentum, and the f32 copy that it keeps.
constexpr bool is_optimizer_state(StateRole role) {
  return role == StateRole::Moment1 || role == StateRole::Moment2 || role == StateRole::Momentum ||
         role == StateRole::Master;
}
inline constexpr auto kStateRoleNames = enum_names<StateRole>(
    {"unknown", "parameter", "shard", "master", "moment1", "moment2", "momentum", "accumulator",
     "carried", "buffer", "constant", "hyperparameters", "random", "scalars", "norm_table",
     "loss_sum", "losses"});
// Whether such an entry belongs to a parameter, and whether to a buffer.
constexpr bool is_of_parameter(StateRole role) {
  return StateRole::Parameter <= role && role <= StateRole::Carried;
}
constexpr bool is_of_buffer(StateRole role) {
  return role == StateRole::Buffer || role == StateRole::Constant;
}

// What the bytes of a slice are for.
enum class SliceKind : uint8_t {
  Parameters,      // masters, shards, copies in the model's dtype
  OptimizerState,  // moments, momentum
  Gradients,       // accumulators, gradients of parameters before and after their reduction
  Buffers,         // module buffers and constants
  Inputs,
  Scalars,      // the step's small tensors
  Gathered,     // whole values that a gather made for a while
  Activations,  // every other value of a program
  Scratch,      // kernel workspace
};
inline constexpr auto kSliceKindNames =
    enum_names<SliceKind>({"parameters", "optimizer state", "gradients", "buffers", "inputs",
                           "scalars", "gathered", "activations", "scratch"});
constexpr SliceKind slice_kind(StateRole role) {
  switch (role) {
    case StateRole::Parameter:
    case StateRole::Shard:
    case StateRole::Master:
      return SliceKind::Parameters;
    case StateRole::Moment1:
    case StateRole::Moment2:
    case StateRole::Momentum:
      return SliceKind::OptimizerState;
    case StateRole::Accumulator:
      return SliceKind::Gradients;
    case StateRole::Carried:
      return SliceKind::Gathered;
    case StateRole::Buffer:
    case StateRole::Constant:
      return SliceKind::Buffers;
    case StateRole::Unknown:
    case StateRole::Hyperparameters:
    case StateRole::Random:
    case StateRole::Scalars:
    case StateRole::NormTable:
    case StateRole::LossSum:
    case StateRole::Losses:
      return SliceKind::Scalars;
  }
  return SliceKind::Scalars;
}

enum class InputRole : uint8_t { Tokens, Labels, Mask, Positions, Class, Float, LossScale };
inline constexpr auto kInputRoleNames = enum_names<InputRole>(
    {"tokens", "labels", "mask", "positions", "class", "float", "loss_scale"});

// What PyTorch's losses leave out of the labels (`ignore_index`) unless they are told otherwise.
inline constexpr int64_t kIgnoredLabel = -100;

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
constexpr std::string_view name(CollectiveKind value) {
  return enum_name(kCollectiveKindNames, value);
}
constexpr std::string_view name(AxisPlacement value) {
  return enum_name(kAxisPlacementNames, value);
}
constexpr std::string_view name(StateRole value) { return enum_name(kStateRoleNames, value); }
constexpr std::string_view name(SliceKind value) { return enum_name(kSliceKindNames, value); }
constexpr std::string_view name(InputRole value) { return enum_name(kInputRoleNames, value); }
constexpr std::string_view name(InitKind value) { return enum_name(kInitKindNames, value); }
constexpr std::string_view name(OptimizerKind value) {
  return enum_name(kOptimizerKindNames, value);
}
constexpr std::string_view name(ScheduleKind value) { return enum_name(kScheduleKindNames, value); }

}  // namespace dc::base
