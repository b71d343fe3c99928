#include "runtime/plan/names.h"

#include <array>

#include "src/base/enum_names.h"

namespace dc::runtime::plan {
namespace {

template <size_t N>
std::string_view pick(const std::array<std::string_view, N>& names, size_t index) {
  return index < N ? names[index] : std::string_view("?");
}

constexpr auto kSpaces = base::enum_names<Space>({"device", "host", "disk"});
constexpr auto kSliceKindNames =
    base::enum_names<SliceKind>({"parameters", "optimizer state", "gradients", "buffers", "inputs",
                                 "scalars", "gathered", "activations", "scratch"});
constexpr auto kArgKinds = base::enum_names<ArgKind>(
    {"none", "tensor", "tensors", "int", "ints", "float", "floats", "bool", "bools", "string",
     "dtype", "device", "layout", "memory_format"});
constexpr auto kInstructions =
    base::enum_names<InstructionKind>({"kernel", "collective", "copy", "signal", "wait"});
constexpr auto kCollectives = base::enum_names<CollectiveKind>(
    {"all_gather", "reduce_scatter", "all_reduce", "broadcast", "all_to_all"});
constexpr auto kInits =
    base::enum_names<InitKind>({"unknown", "normal", "uniform", "zeros", "ones", "constant"});
constexpr auto kSources = base::enum_names<StateSource>(
    {"zeros", "parameter_whole", "parameter_shard", "buffer", "data", "runtime"});
constexpr auto kStateRoles = base::enum_names<StateRole>(
    {"unknown", "parameter", "shard", "master", "moment1", "moment2", "momentum", "accumulator",
     "carried", "buffer", "constant", "hyperparameters", "random", "scalars", "norm_table",
     "loss_sum", "losses"});
constexpr auto kSpreads =
    base::enum_names<Spread>({"replicated", "shard", "flat_shard", "varying", "partial"});
constexpr auto kRoles = base::enum_names<InputRole>(
    {"tokens", "labels", "mask", "positions", "class", "float", "loss_scale"});
constexpr auto kPurposes = base::enum_names<Purpose>({"train", "evaluate"});
constexpr auto kPhases = base::enum_names<Phase>({"forward", "backward", "update"});
constexpr auto kOptimizers = base::enum_names<OptimizerKind>({"adamw", "sgd"});
constexpr auto kSchedules = base::enum_names<ScheduleKind>({"constant", "linear", "cosine"});

}  // namespace

std::string_view name(Space value) { return pick(kSpaces, static_cast<size_t>(value)); }
std::string_view name(SliceKind value) { return pick(kSliceKindNames, static_cast<size_t>(value)); }
std::string_view name(ArgKind value) { return pick(kArgKinds, static_cast<size_t>(value)); }
std::string_view name(InstructionKind value) {
  return pick(kInstructions, static_cast<size_t>(value));
}
std::string_view name(CollectiveKind value) {
  return pick(kCollectives, static_cast<size_t>(value));
}
std::string_view name(InitKind value) { return pick(kInits, static_cast<size_t>(value)); }
std::string_view name(StateSource value) { return pick(kSources, static_cast<size_t>(value)); }
std::string_view name(StateRole value) { return pick(kStateRoles, static_cast<size_t>(value)); }
std::string_view name(Spread value) { return pick(kSpreads, static_cast<size_t>(value)); }
std::string_view name(InputRole value) { return pick(kRoles, static_cast<size_t>(value)); }
std::string_view name(Purpose value) { return pick(kPurposes, static_cast<size_t>(value)); }
std::string_view name(Phase value) { return pick(kPhases, static_cast<size_t>(value)); }
std::string_view name(OptimizerKind value) { return pick(kOptimizers, static_cast<size_t>(value)); }
std::string_view name(ScheduleKind value) { return pick(kSchedules, static_cast<size_t>(value)); }

}  // namespace dc::runtime::plan
